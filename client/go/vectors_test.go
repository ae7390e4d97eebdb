package embd

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// TestVectors runs the files of $EMBD_VECTORS (../../proto/vectors) against the server at $EMBD_SERVER, which must be
// fresh. See proto/vectors/README.md.
func TestVectors(t *testing.T) {
	address, folder := os.Getenv("EMBD_SERVER"), os.Getenv("EMBD_VECTORS")
	if address == "" {
		t.Skip("EMBD_SERVER is not set: no server to run the vectors against")
	}
	if folder == "" {
		folder = "../../proto/vectors"
	}
	client, err := Connect(address, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	run := &runner{client, map[string]*Table{}}
	n := 0
	paths, _ := filepath.Glob(filepath.Join(folder, "*.json"))
	for _, path := range paths {
		n += run.file(t, path)
	}
	if n < 40 {
		t.Fatalf("only %d vectors in %s hold for %d shards", n, folder, len(client.shards()))
	}
	t.Logf("%d vectors agree, %d shards", n, len(client.shards()))
}

type step map[string]json.RawMessage

type runner struct {
	client *Client
	tables map[string]*Table
}

func (run *runner) file(t *testing.T, path string) (n int) {
	var file struct {
		Vectors []struct {
			Name   string
			Shards []int
			Steps  []step
		}
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &file)
	}
	if err != nil {
		t.Fatal(path, err)
	}
	for _, vector := range file.Vectors {
		for _, shards := range vector.Shards {
			if shards != len(run.client.shards()) || hasForeign(vector.Steps) {
				continue
			}
			n++
			for i, step := range vector.Steps {
				if err := run.step(step); err != nil {
					t.Fatalf("%s, %q, step %d: %v", filepath.Base(path), vector.Name, i, err)
				}
			}
		}
	}
	return n
}

// hasForeign tells whether a step is not for this client.
func hasForeign(steps []step) bool {
	for _, s := range steps {
		for _, kind := range []string{"columns", "round", "put", "get"} {
			if _, is := s[kind]; is {
				return true
			}
		}
	}
	return false
}

// step returns how the answer differs from the one in the file.
func (run *runner) step(s step) error {
	answer, err := run.ask(s)
	var wanted, got interface{}
	var refused *Error
	if errors.As(err, &refused) {
		answer, err = refused.Code, nil
	}
	text, _ := json.Marshal(answer)
	if raw, is := s["error"]; is == (refused != nil) && is {
		json.Unmarshal(raw, &wanted)
	} else {
		json.Unmarshal(s["answer"], &wanted)
	}
	json.Unmarshal(text, &got)
	if err == nil && answer != nil && !reflect.DeepEqual(got, wanted) {
		err = fmt.Errorf("got %s (%v), expected %v", text, refused, wanted)
	}
	return err
}

type request struct {
	Table, Weights, Scores, Dtype string
	Keys                          []uint64
	Offsets                       []uint32
	Slots                         []uint16
	Scale, Status, Zero           bool
	LR                            float32
	Grads                         []string
	Writer                        *writer
}

type writer struct {
	High, Low, Sequence uint64
	Stream              uint32
	Journaled           bool
}

func (r *request) batch() *Batch {
	b := &Batch{Keys: r.Keys, Offsets: r.Offsets, Slots: r.Slots, Wire: r.Dtype, Status: r.Status, Zero: r.Zero, LR: r.LR, Sums: !r.Scale}
	if r.Weights != "" {
		b.Weights = numbers(r.Weights, "f32")
	}
	if r.Scores != "" {
		b.Scores = numbers(r.Scores, "f32")
	}
	return b
}

// numbers reads the hex digits of floats.
func numbers(text, wire string) []float32 {
	data := []byte{}
	for _, word := range strings.Fields(text) {
		bits, _ := hex.DecodeString(word)
		for i := range bits {
			data = append(data, bits[len(bits)-1-i])
		}
	}
	return floatsOf(data, wire)
}

// texts writes them, a text for each row.
func texts(values []float32, dim int, wire string) []string {
	rows := []string{}
	for ; len(values) > 0; values = values[dim:] {
		words := []string{}
		for _, x := range values[:dim] {
			switch wire {
			case "f16":
				words = append(words, fmt.Sprintf("%04x", toF16(x)))
			case "bf16":
				words = append(words, fmt.Sprintf("%04x", toBF16(x)))
			default:
				words = append(words, fmt.Sprintf("%08x", math.Float32bits(x)))
			}
		}
		rows = append(rows, strings.Join(words, " "))
	}
	return rows
}

// with adds the statuses to an answer that has them.
func with(answer fields, statuses []byte) fields {
	if statuses != nil {
		list := []int{}
		for _, status := range statuses {
			list = append(list, int(status))
		}
		answer["status"] = list
	}
	return answer
}

// ask returns the answer in the file's form; nil: the client cannot run the step.
func (run *runner) ask(s step) (interface{}, error) {
	var r request
	var w writer
	for kind, raw := range s {
		switch kind {
		case "create":
			return run.create(raw)
		case "push":
			json.Unmarshal(raw, &r)
			return run.push(&r)
		case "pull":
			json.Unmarshal(raw, &r)
			rows, err := run.tables[r.Table].Pull(r.batch())
			if err != nil {
				return nil, err
			}
			return with(fields{"values": texts(rows.Values, run.tables[r.Table].Dim, r.Dtype)}, rows.Statuses), nil
		case "erase":
			json.Unmarshal(raw, &r)
			erased, err := run.tables[r.Table].Erase(r.batch())
			if err != nil {
				return nil, err
			}
			return with(fields{"erased": erased.Erased}, erased.Statuses), nil
		case "describe":
			json.Unmarshal(raw, &r)
			answers, err := run.client.askAll("table_describe", fields{"name": r.Table})
			rows, candidates := uint64(0), uint64(0)
			for _, answer := range answers {
				rows += number(answer["rows"])
				candidates += number(answer["candidates"])
			}
			return fields{"step": number(answers[0]["step"]), "rows": rows, "candidates": candidates}, err
		case "stream_open":
			json.Unmarshal(raw, &w)
			answers, err := run.client.askAll("stream_open",
				fields{"high": w.High, "low": w.Low, "stream": w.Stream, "journaled": w.Journaled})
			return answers[0], err
		case "writer":
			json.Unmarshal(raw, &w)
			answers, err := run.client.askAll("writer", fields{"high": w.High, "low": w.Low, "stream": w.Stream})
			return answers[0], err
		case "route":
			return route(raw), nil
		case "call":
			return run.call(raw)
		}
	}
	return nil, nil // "rows": this client does not speak to admin listeners
}

func (run *runner) create(raw json.RawMessage) (interface{}, error) {
	var what struct {
		Schema    Schema
		SlotSizes []uint64 `json:"slot_sizes"`
	}
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.UseNumber()
	decoder.Decode(&what)
	table, err := run.client.CreateTable(plain(what.Schema).(fields), what.SlotSizes)
	if err != nil {
		return nil, err
	}
	run.tables[table.Name] = table
	return fields{"id": table.ids[0], "created": true}, nil
}

func (run *runner) push(r *request) (interface{}, error) {
	table, gradients := run.tables[r.Table], []float32{}
	for _, row := range r.Grads {
		gradients = append(gradients, numbers(row, r.Dtype)...)
	}
	var stream *Stream
	if w := r.Writer; w != nil {
		stream = &Stream{High: w.High, Low: w.Low, Number: w.Stream, Next: w.Sequence}
	}
	p, err := table.push(r.batch(), gradients, stream)
	if err != nil {
		return nil, err
	}
	if p.Again {
		return fields{"again": true}, nil
	}
	return with(fields{"step": p.Step, "inserted": p.Inserted, "full": p.Full, "filtered": p.Filtered,
		"evicted": p.Evicted}, p.Statuses), nil
}

func route(raw json.RawMessage) interface{} {
	var what struct {
		Partition string
		Keys      []uint64
		Slots     []uint16
		Shards    int
	}
	var answer fields
	json.Unmarshal(raw, &what)
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.UseNumber()
	decoder.Decode(&answer)
	p, err := placementOf(plain(answer).(fields), what.Shards)
	if err != nil {
		return err.Error()
	}
	places := []int{}
	for i, key := range what.Keys {
		slot := uint16(0)
		if what.Slots != nil {
			slot = what.Slots[i]
		}
		places = append(places, p.shardOf(what.Partition, key, slot))
	}
	return places
}

// call sends a request as it is to shard 0.
func (run *runner) call(raw json.RawMessage) (interface{}, error) {
	var what struct {
		Method string
		Params fields
		Bins   []string
	}
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.UseNumber()
	decoder.Decode(&what)
	bins := [][]byte{}
	for _, digits := range what.Bins {
		bin, _ := hex.DecodeString(digits)
		bins = append(bins, bin)
	}
	answer, _, err := run.client.shards()[0].call(what.Method, plain(what.Params).(fields), bins...)
	return answer, err
}

// plain turns the numbers of JSON into Go's.
func plain(value interface{}) interface{} {
	switch v := value.(type) {
	case json.Number:
		if n, err := strconv.ParseUint(string(v), 10, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return n
		}
		x, _ := v.Float64()
		return x
	case map[string]interface{}:
		for name, item := range v {
			v[name] = plain(item)
		}
	case []interface{}:
		for i, item := range v {
			v[i] = plain(item)
		}
	}
	return value
}

// A push whose connection is lost is sent again, with its number, and applied once.
func TestStreamRepeatsALostPush(t *testing.T) {
	address := os.Getenv("EMBD_SERVER")
	if address == "" {
		t.Skip("EMBD_SERVER is not set")
	}
	client, err := Connect(address, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	table, err := client.CreateTable(Schema{"name": "streamed", "dim": 1, "durability": "snapshot",
		"optimizer": fields{"kind": "sgd", "lr": 1.0}, "initializer": fields{"kind": "constant", "a": 0.0}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := client.OpenStream(77, 78, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	batch := &Batch{Keys: []uint64{1, 2, 3, 4, 5}}
	for i := 1; i <= 3; i++ {
		if _, err := stream.Push(table, batch, []float32{1, 1, 1, 1, 1}); err != nil {
			t.Fatal(err)
		}
		client.shards()[0].conn.Close()
	}
	stream.Next = 3
	if again, err := stream.Push(table, batch, []float32{1, 1, 1, 1, 1}); err != nil || !again.Again {
		t.Fatal(again, err)
	}
	rows, err := table.Pull(batch)
	if err != nil || !reflect.DeepEqual(rows.Values, []float32{-3, -3, -3, -3, -3}) {
		t.Fatal(rows, err)
	}
}
