// Package embd is a client of the embd parameter server: tables, pulls, pushes, erases and numbered pushes, over the
// protocol of proto/PROTOCOL.md. It is small on purpose: copy it, and change what you need.
//
//	client, err := embd.Connect("127.0.0.1:7700", embd.Options{})
//	table, err := client.CreateTable(embd.Schema{"name": "items", "dim": 8}, nil)
//	rows, err := table.Pull(&embd.Batch{Keys: []uint64{7, 9}})
//	pushed, err := table.Push(&embd.Batch{Keys: []uint64{7, 9}}, gradients)
//
// A Client is safe for concurrent use. Its pushes are made one after the other.
package embd

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Options of Connect.
type Options struct {
	Token   string        // for servers that ask for one
	Timeout time.Duration // of a call to a shard; 0: 30 s
	id      uint64        // of the client: proto/PROTOCOL.md, "The order of pushes"
}

// Client has a connection to each shard, also to those that are added to the cluster later, and none to those that left.
type Client struct {
	placement atomic.Pointer[placement]
	learning  sync.Mutex
	known     []*shard // of the cluster; under `learning`
	pushing   sync.Mutex
	order     uint64 // of the last push's messages; under `pushing`
}

// Schema is the map of a table's definition: proto/PROTOCOL.md, "Schemas".
type Schema = map[string]interface{}

// Connect asks the shard at `address` where the others are, and connects to all of them.
func Connect(address string, options Options) (*Client, error) {
	if options.Timeout == 0 {
		options.Timeout = 30 * time.Second
	}
	if err := binary.Read(rand.Reader, binary.LittleEndian, &options.id); err != nil {
		return nil, err
	}
	first := &shard{address: address, options: options}
	defer first.hangUp()
	answer, _, err := first.call("cluster", fields{})
	if err != nil {
		return nil, err
	}
	p, err := clusterOf(answer, nil, options)
	if err != nil {
		return nil, err
	}
	c := &Client{known: p.shards}
	c.placement.Store(p)
	return c, c.onAll(func(shards []*shard) error {
		_, err := ask(shards, "ping", fields{})
		return err
	})
}

// shards returns the cluster's shards, as far as the client knows.
func (c *Client) shards() []*shard {
	return c.placement.Load().shards
}

// learn asks for the map and the shards of the cluster.
func (c *Client) learn() (*placement, error) {
	c.learning.Lock()
	defer c.learning.Unlock()
	answer, _, err := c.known[0].call("cluster", fields{})
	if err != nil {
		return nil, err
	}
	p, err := clusterOf(answer, c.known, c.known[0].options)
	if err == nil {
		for _, s := range c.known[common(c.known, len(p.shards)):] {
			go s.leave()
		}
		c.known = p.shards
	}
	return p, err
}

// hasLost says whether shards of the map have left the cluster. Then the client has the map without them.
func (c *Client) hasLost(p *placement) bool {
	next, err := c.learn()
	if err != nil || next.version <= p.version || len(next.shards) >= len(p.shards) {
		return false
	}
	c.placement.Store(next)
	return true
}

// onAll runs f with all shards, and once more where it failed since some have left.
func (c *Client) onAll(f func(shards []*shard) error) error {
	for {
		p := c.placement.Load()
		if err := f(p.shards); err == nil || !c.hasLost(p) {
			return err
		}
	}
}

// seesAll says whether the client knows all shards. It does from then on.
func (c *Client) seesAll() (bool, error) {
	p, err := c.learn()
	if err != nil || len(p.shards) <= len(c.shards()) {
		return true, err
	}
	c.placement.Store(p)
	return false, nil
}

// Close ends the connections.
func (c *Client) Close() {
	for _, s := range c.shards() {
		s.leave()
	}
}

// all runs f for all shards at once, and returns each one's error.
func all(shards []*shard, f func(i int, s *shard) error) []error {
	failures := make([]error, len(shards))
	var running sync.WaitGroup
	for i, s := range shards {
		running.Add(1)
		go func(i int, s *shard) {
			defer running.Done()
			failures[i] = f(i, s)
		}(i, s)
	}
	running.Wait()
	return failures
}

// first returns the error of the first shard that has one. Moved is before all others: such a request is not repeated.
func first(failures []error) (first error) {
	for i, err := range failures {
		var e *Error
		if errors.As(err, &e) && (first == nil || isMoved(err) && !isMoved(first)) {
			first = &Error{e.Code, fmt.Sprintf("shard %d: %s", i, e.Text)}
		}
	}
	return first
}

// askAll sends the same request to all shards.
func (c *Client) askAll(method string, params fields, bins ...[]byte) ([]fields, error) {
	return ask(c.shards(), method, params, bins...)
}

func ask(shards []*shard, method string, params fields, bins ...[]byte) ([]fields, error) {
	answers := make([]fields, len(shards))
	failures := all(shards, func(i int, s *shard) (err error) {
		answers[i], _, err = s.call(method, params, bins...)
		return err
	})
	return answers, first(failures)
}

// Tables returns the names of the tables with their ids.
func (c *Client) Tables() (map[string]uint32, error) {
	answer, _, err := c.shards()[0].call("tables", fields{})
	tables := map[string]uint32{}
	list, _ := answer["tables"].([]interface{})
	for _, item := range list {
		table, _ := item.(map[string]interface{})
		name, _ := table["name"].(string)
		tables[name] = uint32(number(table["id"]))
	}
	return tables, err
}

// CreateTable creates a table on all shards, or finds it as it is. slotSizes may be nil. Exists: there is another one
// of this name.
func (c *Client) CreateTable(schema Schema, slotSizes []uint64) (*Table, error) {
	var bins [][]byte
	definition := Schema{}
	for name, value := range schema {
		definition[name] = value
	}
	if slotSizes != nil {
		definition["slot_sizes"] = true
		bins = [][]byte{appendKeys(nil, slotSizes)}
	}
	for isEverywhere := false; !isEverywhere; { // again, if the cluster got shards meanwhile
		err := c.onAll(func(shards []*shard) error {
			_, err := ask(shards, "table_create", fields{"schema": definition}, bins...)
			return err
		})
		if err == nil {
			isEverywhere, err = c.seesAll()
		}
		if err != nil {
			return nil, err
		}
	}
	name, _ := schema["name"].(string)
	return c.OpenTable(name)
}

// OpenTable looks a table up.
func (c *Client) OpenTable(name string) (*Table, error) {
	answer, bins, err := c.shards()[0].call("table_describe", fields{"name": name})
	if err != nil {
		return nil, err
	}
	schema, _ := answer["schema"].(map[string]interface{})
	t := &Table{client: c, Name: name, Dim: int(number(schema["dim"])), starts: []uint64{0}}
	t.combiner, _ = schema["combiner"].(string)
	t.partition, _ = schema["partition"].(string)
	if len(bins) > 0 {
		for _, size := range keysOf(bins[0]) {
			t.starts = append(t.starts, t.starts[len(t.starts)-1]+size)
		}
	}
	if t.Dim == 0 {
		return nil, &Error{Protocol, "the table has no columns"}
	}
	return t, c.onAll(func(shards []*shard) error {
		_, err := t.idsOn(shards)
		return err
	})
}

// A Stream numbers pushes, so that each is applied once however often it is sent: Stream.Push repeats a push until it is
// answered. One goroutine uses a stream at a time.
type Stream struct {
	High, Low uint64
	Number    uint32
	Next      uint64        // number of the next push
	Patience  time.Duration // how long Push repeats; 0: a minute
	client    *Client
	journaled bool
	opened    int // shards that it was opened on; 0: the caller sees to that
}

// OpenStream begins a stream on all shards. `high` and `low` are random numbers of the caller's. `journaled` says whether
// the stream is for tables that are journaled. A stream is opened only before its first push.
func (c *Client) OpenStream(high, low uint64, number uint32, journaled bool) (*Stream, error) {
	s := &Stream{High: high, Low: low, Number: number, Next: 1, client: c, journaled: journaled}
	return s, c.onAll(s.openOn)
}

// openOn opens the stream where it is not open yet. On a shard that was added it is as far as on the others.
func (s *Stream) openOn(shards []*shard) error {
	if len(shards) <= s.opened {
		s.opened = len(shards) // others may get the numbers of those that left
		return nil
	}
	params := s.fields()
	params["journaled"] = s.journaled
	_, err := ask(shards[s.opened:], "stream_open", params)
	if err == nil {
		s.opened = len(shards)
	}
	return err
}

func (s *Stream) fields() fields {
	return fields{"high": s.High, "low": s.Low, "stream": s.Number}
}

// Push pushes as Table.Push does, and repeats a push whose connection was lost or whose server is busy. It uses a number
// up when it succeeds. After an error the same push, or one without keys, has to take the number.
func (s *Stream) Push(t *Table, b *Batch, gradients []float32) (*Pushed, error) {
	patience, pause := s.Patience, 10*time.Millisecond
	if patience == 0 {
		patience = time.Minute
	}
	for end := time.Now().Add(patience); ; pause *= 2 {
		pushed, err := t.push(b, gradients, s)
		var e *Error
		if err == nil {
			s.Next++
		}
		if !errors.As(err, &e) || !e.mayRepeat() || time.Now().Add(pause).After(end) {
			return pushed, err
		}
		time.Sleep(pause)
	}
}
