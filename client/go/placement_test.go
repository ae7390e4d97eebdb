package embd

import (
	"context"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
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
	limit, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	command := exec.CommandContext(limit, embctl, "--servers", address, "rebalance", "--weights", strings.Join(weights, ","))
	if said, err := command.CombinedOutput(); err != nil {
		t.Errorf("embctl rebalance: %v: %s", err, said)
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

// pushUntil pushes to all tables until keys have moved, and a little longer. It returns the number of pushes to each.
func pushUntil(t *testing.T, moved chan bool, stream *Stream, all []*counted) (pushes int) {
	ones := make([]float32, 1000)
	for k := range ones {
		ones[k] = 1
	}
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
	if err != nil || rows != 500 || number(answers[0]["rows"]) != 0 {
		t.Fatal(c.tables[0].Name, answers, err)
	}
}

// Keys move while a client pushes: each push is applied once. Clients that were connected before follow the new map,
// whatever they ask first. $EMBD_SERVER has several shards and a data directory; $EMBCTL is embctl.
func TestKeysMove(t *testing.T) {
	address, embctl := os.Getenv("EMBD_SERVER"), os.Getenv("EMBCTL")
	if address == "" || embctl == "" {
		t.Skip("EMBD_SERVER or EMBCTL is not set")
	}
	clients := []*Client{}
	for range []string{"pushes", "pulls", "erases"} {
		client, err := Connect(address, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		clients = append(clients, client)
	}
	all := []*counted{}
	for _, partition := range []string{"hash", "modulo", "slot"} {
		all = append(all, newCounted(t, clients, partition))
	}
	stream, err := clients[0].OpenStream(79, 80, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	before, moved := clients[0].placement.Load().version, make(chan bool)
	go func() {
		defer close(moved)
		for move := 0; move < moves; move++ {
			rebalance(t, embctl, address, len(clients[0].shards), move)
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
