package embd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// A push that a shard may have applied is reported as moved, and not sent again.
func TestPushesThatMayBeAppliedAreNotSplitAgain(t *testing.T) {
	moved, closed := &Error{Moved, "moved"}, &Error{Closed, "closed"}
	for _, c := range []struct {
		failures     []error
		pulls, again bool // a pull, a push is split again
		code         int
	}{
		{[]error{moved, moved}, true, true, Moved},
		{[]error{nil, moved}, true, false, Moved},
		{[]error{closed, moved}, true, false, Moved},
		{[]error{nil, closed}, false, false, Closed},
	} {
		pulls, again, failure := splitsAgain(c.failures, false), splitsAgain(c.failures, true), first(c.failures)
		if pulls != c.pulls || again != c.again || failure.(*Error).Code != c.code {
			t.Fatal(c, pulls, again, failure)
		}
	}
}

// A push to a shard that has left may have been applied there, unless it had no keys for it, or was refused, or has a number
// that no other shard has applied.
func TestShardsThatLeftAreLeftOut(t *testing.T) {
	moved, closed, unreachable := &Error{Moved, "moved"}, &Error{Closed, "closed"}, &Error{Unreachable, "unreachable"}
	for _, c := range []struct {
		failures []error
		keys     int // for the shard that left
		is       kind
		again    bool
		code     int // 0: it is done
	}{
		{[]error{nil, closed}, 0, plainPush, false, 0},
		{[]error{moved, closed}, 0, plainPush, true, Moved},
		{[]error{nil, closed}, 3, plainPush, false, Closed},
		{[]error{moved, closed}, 3, plainPush, false, Moved},
		{[]error{moved, unreachable}, 3, plainPush, true, Moved},
		{[]error{nil, closed}, 3, repeatable, true, Moved},
		{[]error{nil, closed}, 3, numberedPush, false, 0},
		{[]error{moved, closed}, 3, numberedPush, true, Moved},
	} {
		shares := []share{{at: make([]int, 2)}, {at: make([]int, c.keys)}}
		failures := leftOut(c.failures, shares, 1, c.is)
		var e *Error
		code := 0
		if errors.As(first(failures), &e) {
			code = e.Code
		}
		if again := splitsAgain(failures, c.is != repeatable); again != c.again || code != c.code {
			t.Fatal(c, again, code)
		}
	}
}

// broken is a shard of a test. Its connections break in the midst of so many pushes; pushes of an earlier map are refused.
type broken struct {
	listener net.Listener
	cluster  func() fields // what it answers to "cluster"
	version  func() uint64 // of its map
	mutex    sync.Mutex    // of the following
	breaks   int
	applied  []uint64 // numbers of pushes
}

func newBroken(t *testing.T, breaks int) *broken {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return &broken{listener: listener, breaks: breaks}
}

func (b *broken) serve() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return
		}
		go b.talk(conn)
	}
}

func (b *broken) talk(conn net.Conn) {
	defer conn.Close()
	reader := msgpack.NewDecoder(conn)
	for {
		message, err := reader.DecodeSlice()
		if err != nil {
			return
		}
		params, _ := message[3].([]interface{})[0].(fields)
		refusal, answer := b.answer(message[2].(string), params)
		if answer == nil {
			return
		}
		bytes, _ := msgpack.Marshal([]interface{}{1, message[1], refusal, []interface{}{answer}})
		conn.Write(bytes)
	}
}

func (b *broken) answer(method string, params fields) (refusal interface{}, answer fields) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	switch method {
	case "cluster":
		return nil, b.cluster()
	case "table_describe":
		return nil, fields{"id": 1, "schema": fields{"dim": 1, "combiner": "none", "partition": "hash"}}
	case "push":
		if b.breaks > 0 {
			b.breaks--
			return nil, nil
		}
		sequence := number(params["writer"].(fields)["sequence"])
		for _, applied := range b.applied {
			if applied == sequence {
				return nil, fields{"again": true}
			}
		}
		if number(params["placement"]) != b.version() {
			return []interface{}{Moved, "moved"}, fields{}
		}
		b.applied = append(b.applied, sequence)
		return nil, fields{"parts": []interface{}{fields{"step": 1}}}
	}
	return nil, fields{}
}

// Connections break in the midst of a numbered push to shards of which one has left: the client learns the map, and each
// shard that stays applies it once, with its number.
func TestNumberedPushesFollowAMapOverBrokenConnections(t *testing.T) {
	for _, c := range []struct{ breaks, leaves, stays int }{{1, 2, 2}, {1, 3, 2}, {2, 3, 2}} {
		shards, version := []*broken{}, atomic.Uint64{}
		addresses := []interface{}{}
		for i := 0; i < c.leaves; i++ {
			breaks := 0
			if i > 0 {
				breaks = c.breaks
			}
			shards = append(shards, newBroken(t, breaks))
			addresses = append(addresses, fields{"address": shards[i].listener.Addr().String()})
		}
		shards[0].cluster = func() fields {
			n, runs := c.leaves, []interface{}{0, 1, 1, 1023}
			if version.Load() > 2 {
				n, runs = c.stays, []interface{}{0, 2, 1, 1022}
			} else if c.leaves > 2 {
				runs = []interface{}{0, 1, 1, 1, 2, 1022}
			}
			return fields{"shards": addresses[:n], "placement": fields{"version": version.Load(), "base": 1, "runs": runs}}
		}
		for _, shard := range shards {
			shard.version = version.Load
			go shard.serve()
		}
		version.Store(2)
		client, err := Connect(shards[0].listener.Addr().String(), Options{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		table, err := client.OpenTable("t")
		if err != nil {
			t.Fatal(err)
		}
		version.Store(3)
		stream := &Stream{High: 1, Low: 2, Next: 7, client: client}
		if _, err := stream.Push(table, &Batch{Keys: []uint64{1, 2, 3, 4}}, onesOf(4)); err != nil {
			t.Fatal(c, err)
		}
		for i, shard := range shards {
			wanted := []uint64{7}
			if i >= c.stays {
				wanted = nil
			}
			shard.mutex.Lock()
			defer shard.mutex.Unlock()
			if !reflect.DeepEqual(shard.applied, wanted) {
				t.Fatal(c, i, shard.applied)
			}
		}
	}
}

const moves = 5

// rebalance moves keys. By an even move shard 0 has none then, by an odd one the last shard.
func rebalance(t *testing.T, embctl, address string, shards, move int) {
	weights := []string{}
	for i := 0; i < shards; i++ {
		weight := i
		if move%2 == 1 {
			weight = shards - 1 - i
		}
		weights = append(weights, strconv.Itoa(weight))
	}
	operate(t, embctl, address, "rebalance", "--weights", strings.Join(weights, ","))
}

// operate runs embctl, again while something else is under way.
func operate(t *testing.T, embctl, address string, words ...string) {
	limit, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		command := exec.CommandContext(limit, embctl, append([]string{"--servers", address}, words...)...)
		said, err := command.CombinedOutput()
		if err == nil {
			return
		}
		if !strings.Contains(string(said), "try again") {
			t.Errorf("embctl %s: %v: %s", words[0], err, said)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// counted is a table as each client sees it. Every push takes 1 from every row.
type counted struct {
	tables []*Table
	batch  *Batch
}

func newCounted(t *testing.T, clients []*Client, partition string) *counted {
	schema := Schema{"name": "moving-" + partition, "dim": 1, "partition": partition,
		"optimizer": fields{"kind": "sgd", "lr": 1.0}, "initializer": fields{"kind": "constant", "a": 0.0}}
	c := &counted{batch: &Batch{Status: true}}
	if partition == "slot" {
		schema["slots"] = 7
	}
	for k := 0; k < 1000; k++ {
		c.batch.Keys = append(c.batch.Keys, uint64(k))
		if partition == "slot" {
			c.batch.Slots = append(c.batch.Slots, uint16(k%7))
		}
	}
	for _, client := range clients {
		table, err := client.CreateTable(schema, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.tables = append(c.tables, table)
	}
	return c
}

func onesOf(n int) []float32 {
	ones := make([]float32, n)
	for i := range ones {
		ones[i] = 1
	}
	return ones
}

// pushUntil pushes to all tables until keys have moved, and a little longer. It returns the number of pushes to each.
func pushUntil(t *testing.T, moved chan bool, stream *Stream, all []*counted) (pushes int) {
	ones := onesOf(1000)
	for more := 3; more > 0; pushes++ {
		for _, c := range all {
			if _, err := stream.Push(c.tables[0], c.batch, ones); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-moved:
			more--
		default:
		}
	}
	return pushes
}

// check pulls with one client and erases half of the rows with another: both were connected before keys moved.
func (c *counted) check(t *testing.T, pushes int) {
	wanted := make([]float32, 1000)
	for k := range wanted {
		wanted[k] = -float32(pushes)
	}
	if rows, err := c.tables[1].Pull(c.batch); err != nil || !reflect.DeepEqual(rows.Values, wanted) {
		t.Fatal(c.tables[1].Name, rows, err)
	}
	half := &Batch{Keys: c.batch.Keys[:500]}
	if c.batch.Slots != nil {
		half.Slots = c.batch.Slots[:500]
	}
	if erased, err := c.tables[2].Erase(half); err != nil || erased.Erased != 500 {
		t.Fatal(c.tables[2].Name, erased, err)
	}
	answers, err := c.tables[0].client.askAll("table_describe", fields{"name": c.tables[0].Name})
	rows := uint64(0)
	for _, answer := range answers {
		rows += number(answer["rows"])
	}
	if err != nil || rows != 500 || len(answers) > 1 && number(answers[0]["rows"]) != 0 {
		t.Fatal(c.tables[0].Name, answers, err)
	}
}

// connectAll connects clients that push, pull and erase, and makes a table of each partition.
func connectAll(t *testing.T, address string) ([]*Client, []*counted) {
	clients, tables := []*Client{}, []*counted{}
	for range []string{"pushes", "pulls", "erases"} {
		client, err := Connect(address, Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		clients = append(clients, client)
	}
	for _, partition := range []string{"hash", "modulo", "slot"} {
		tables = append(tables, newCounted(t, clients, partition))
	}
	return clients, tables
}

// means is a table whose rows are means of two keys. Every push takes 1/2 from each.
type means struct {
	table  *Table
	batch  *Batch
	stream *Stream
	pushes int
	err    error
}

func newMeans(t *testing.T, client *Client) *means {
	table, err := client.CreateTable(Schema{"name": "means", "dim": 1, "combiner": "mean",
		"optimizer": fields{"kind": "sgd", "lr": 1.0}, "initializer": fields{"kind": "constant", "a": 0.0}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := client.OpenStream(83, 84, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	m := &means{table: table, stream: stream, batch: &Batch{Offsets: []uint32{0}}}
	for k := 0; k < 100; k++ {
		m.batch.Keys = append(m.batch.Keys, uint64(2*k), uint64(2*k+1))
		m.batch.Offsets = append(m.batch.Offsets, uint32(2*k+2))
	}
	return m
}

func (m *means) pushUntil(moved chan bool, ended chan bool) {
	defer close(ended)
	for ; m.err == nil; m.pushes++ {
		select {
		case <-moved:
			return
		default:
		}
		_, m.err = m.stream.Push(m.table, m.batch, onesOf(100))
	}
}

func (m *means) check(t *testing.T) {
	rows, err := m.table.Pull(m.batch)
	if m.err != nil || err != nil {
		t.Fatal(m.err, err)
	}
	for _, row := range rows.Values {
		if row != -float32(m.pushes)/2 {
			t.Fatal(m.pushes, rows.Values)
		}
	}
}

// retire has the last server leave the cluster, and kills it.
func retire(t *testing.T, embctl, address string, shard int, pid string) {
	name, number := strconv.Itoa(shard), 0
	operate(t, embctl, address, "rebalance", "--drain", name)
	operate(t, embctl, address, "shard", "retire", name)
	if _, err := fmt.Sscan(pid, &number); err != nil || syscall.Kill(number, syscall.SIGKILL) != nil {
		t.Errorf("process %q cannot be killed", pid)
	}
}

// Servers become members while clients push, and leave: each push is applied once, also of tables and streams from before.
// $EMBD_SERVER has one shard and a data directory; $EMBD_ADDED are servers that were started to join it, $EMBD_PIDS their
// processes.
func TestClusterGrowsAndShrinks(t *testing.T) {
	address, embctl, list := os.Getenv("EMBD_SERVER"), os.Getenv("EMBCTL"), os.Getenv("EMBD_ADDED")
	if address == "" || embctl == "" || list == "" {
		t.Skip("EMBD_SERVER, EMBCTL or EMBD_ADDED is not set")
	}
	clients, all := connectAll(t, address)
	stream, err := clients[0].OpenStream(81, 82, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	pooled, added, moved, ended := newMeans(t, clients[1]), strings.Split(list, ","), make(chan bool), make(chan bool)
	go pooled.pushUntil(moved, ended)
	go func() {
		defer close(moved)
		for i, server := range added {
			operate(t, embctl, address, "shard", "add", server)
			rebalance(t, embctl, address, i+2, 0)
		}
	}()
	pushes := pushUntil(t, moved, stream, all)
	<-ended
	if n := len(clients[0].shards()); n != len(added)+1 {
		t.Fatal("the client knows", n, "shards")
	}
	t.Log(pushes, "and", pooled.pushes, "pushes while the cluster grew")
	pooled.check(t)
	early, err := clients[2].CreateTable(Schema{"name": "early", "dim": 1}, nil)
	if err != nil || len(early.ids) != len(added)+1 {
		t.Fatal(early, err)
	}
	moved, ended = make(chan bool), make(chan bool)
	go pooled.pushUntil(moved, ended)
	go func() {
		defer close(moved)
		for i, pid := range strings.Split(os.Getenv("EMBD_PIDS"), ",") {
			retire(t, embctl, address, len(added)-i, pid)
		}
	}()
	pushes += pushUntil(t, moved, stream, all)
	<-ended
	if n := len(clients[0].shards()); n != 1 {
		t.Fatal("the client knows", n, "shards")
	}
	t.Log(pushes, "and", pooled.pushes, "pushes until servers had left the cluster")
	if _, err := early.Push(all[0].batch, onesOf(1000)); err != nil { // its client has heard of nothing, and they have ended
		t.Fatal(err)
	}
	pooled.check(t)
	for _, c := range all {
		c.check(t, pushes)
	}
	later, err := clients[1].CreateTable(Schema{"name": "later", "dim": 1}, nil)
	if err != nil || len(later.ids) != 1 {
		t.Fatal(later, err)
	}
}

// Keys move while a client pushes: each push is applied once. Clients that were connected before follow the new map,
// whatever they ask first. $EMBD_SERVER has several shards and a data directory; $EMBCTL is embctl.
func TestKeysMove(t *testing.T) {
	address, embctl := os.Getenv("EMBD_SERVER"), os.Getenv("EMBCTL")
	if address == "" || embctl == "" {
		t.Skip("EMBD_SERVER or EMBCTL is not set")
	}
	clients, all := connectAll(t, address)
	stream, err := clients[0].OpenStream(79, 80, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	before, moved := clients[0].placement.Load().version, make(chan bool)
	go func() {
		defer close(moved)
		for move := 0; move < moves; move++ {
			rebalance(t, embctl, address, len(clients[0].shards()), move)
		}
	}()
	pushes := pushUntil(t, moved, stream, all)
	if after := clients[0].placement.Load().version; after != before+moves {
		t.Fatal("the client has version", after, "of the map, and had", before)
	}
	if clients[0].order <= uint64(pushes*len(all)) {
		t.Fatal("a push that was refused was sent again with the same order")
	}
	t.Log(pushes, "pushes while keys moved")
	for _, c := range all {
		c.check(t, pushes)
	}
}
