package embd

import (
	"encoding/binary"
	"fmt"
	"sync"
)

// Table is a table of all shards.
type Table struct {
	Name                string
	Dim                 int
	client              *Client
	mutex               sync.Mutex
	ids                 []uint64 // on each shard; under `mutex`
	asked               []*shard // for these ids
	combiner, partition string
	starts              []uint64 // with slot_sizes: where the keys of each slot begin
}

// Statuses of keys.
const (
	Hit      = 0
	Inserted = 1
	Missing  = 2
	Filtered = 3
	Evicted  = 4
	NoRoom   = 5
)

// Rows is the answer to a pull.
type Rows struct {
	Values   []float32 // [rows][Dim]
	Statuses []byte    // of each key, where asked for
}

// Pushed is the answer to a push. Counts are sums over the shards.
type Pushed struct {
	Step                              uint64
	Inserted, Full, Filtered, Evicted uint64
	Statuses                          []byte
	Again                             bool // a numbered push that was applied before; nothing else is set
}

// Erased is the answer to an erase.
type Erased struct {
	Erased   uint64
	Statuses []byte
}

// Key is the stored key of a slot's key, in tables with slot_sizes; elsewhere the key itself.
func (t *Table) Key(slot int, key uint64) uint64 {
	if len(t.starts) == 1 {
		return key
	}
	return key + t.starts[slot]
}

// idsOn returns the table's id on each shard: shards may give it different ones. It asks those that it has not asked yet.
func (t *Table) idsOn(shards []*shard) ([]uint64, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	n := 0
	for n < len(shards) && n < len(t.asked) && shards[n] == t.asked[n] {
		n++
	}
	if n < len(shards) {
		answers, err := ask(shards[n:], "table_describe", fields{"name": t.Name})
		if err != nil {
			return nil, err
		}
		t.ids = t.ids[:n:n]
		for _, answer := range answers {
			t.ids = append(t.ids, number(answer["id"]))
		}
		t.asked = shards
	}
	return t.ids[:len(shards):len(shards)], nil
}

// divides says whether rows are divided, and gradients with them.
func (t *Table) divides(b *Batch) bool {
	return b.Offsets != nil && !b.Sums && (t.combiner == "mean" || t.combiner == "sqrtn")
}

// part returns the map of a shard's part, and its bins but gradients.
func (t *Table) part(b *Batch, s *share) (fields, [][]byte) {
	part, bins := fields{"table": s.table, "keys": len(s.at)}, [][]byte{s.keys}
	if b.Offsets != nil {
		part["rows"], bins = len(s.rows), append(bins, s.offsets)
	}
	if b.Slots != nil {
		part["slots"], bins = true, append(bins, s.slots)
	}
	if b.Offsets != nil && s.isWeighted {
		part["weights"], bins = true, append(bins, s.weights)
	}
	if b.Scores != nil {
		part["scores"], bins = true, append(bins, s.scores)
	}
	if b.Wire != "" {
		part["dtype"] = b.Wire
	}
	if b.Status {
		part["status"] = true
	}
	if b.LR != 0 {
		part["lr"] = b.LR
	}
	if b.Zero {
		part["zero"] = true
	}
	if t.divides(b) && s.isOnly {
		part["scale"] = true
	}
	return part, bins
}

func (s *share) parts(part fields) fields {
	params := fields{"parts": []fields{part}}
	if s.placement > 0 {
		params["placement"] = s.placement
	}
	return params
}

// onlyPart returns the map of the answer's part.
func onlyPart(answer fields) (fields, error) {
	list, _ := answer["parts"].([]interface{})
	if len(list) != 1 {
		return nil, &Error{Protocol, "the answer has not one part"}
	}
	part, _ := list[0].(map[string]interface{})
	return part, nil
}

// tell copies a shard's statuses to where their keys stand.
func (s *share) tell(statuses []byte, bins [][]byte, at int) error {
	if statuses == nil {
		return nil
	}
	if len(bins) <= at || len(bins[at]) != len(s.at) {
		return &Error{Protocol, "the answer has not the statuses asked for"}
	}
	for i, k := range s.at {
		statuses[k] = bins[at][i]
	}
	return nil
}

func newStatuses(b *Batch) []byte {
	if !b.Status {
		return nil
	}
	return make([]byte, len(b.Keys))
}

// Pull reads rows. Rows of mean and sqrtn tables are finished, unless b.Sums. With a 16-bit wire and several shards, the
// shards' sums are rounded before they are added.
func (t *Table) Pull(b *Batch) (*Rows, error) {
	if err := b.check(t.partition); err != nil {
		return nil, err
	}
	rows := &Rows{Values: make([]float32, b.rows()*t.Dim), Statuses: newStatuses(b)}
	var sums [][]float32
	begin := func(shards []*shard) ([]float32, error) {
		sums = make([][]float32, len(shards))
		return b.Weights, nil
	}
	shares, err := t.placed(b, repeatable, begin, func(i int, to *shard, s *share) error {
		if len(s.rows) == 0 && !s.isOnly {
			return nil
		}
		part, bins := t.part(b, s)
		_, data, err := to.call("pull", s.parts(part), bins...)
		if err != nil || len(data) == 0 {
			return err
		}
		if sums[i] = floatsOf(data[0], b.Wire); len(sums[i]) != len(s.rows)*t.Dim {
			return &Error{Protocol, "the answer has not the rows asked for"}
		}
		return s.tell(rows.Statuses, data, 1)
	})
	if err != nil {
		return nil, err
	}
	t.add(b, rows.Values, shares, sums)
	return rows, nil
}

// add puts the shards' rows together, in the order of the shards, and divides sums.
func (t *Table) add(b *Batch, values []float32, shares []share, sums [][]float32) {
	begun := make([]bool, b.rows())
	for i := range shares {
		for at, r := range shares[i].rows {
			for c, x := range sums[i][at*t.Dim : (at+1)*t.Dim] {
				if begun[r] {
					x += values[r*t.Dim+c]
				}
				values[r*t.Dim+c] = x
			}
			begun[r] = true
		}
	}
	for r := 0; t.divides(b) && len(shares) > 1 && r < b.rows(); r++ {
		by := b.divisor(t.combiner, r)
		for c := r * t.Dim; c < (r+1)*t.Dim; c++ {
			values[c] /= by
		}
	}
}

// Push sends gradients, [rows][Dim]: one step of the table, on all shards. Gradients are those of finished rows, unless
// b.Sums. Each shard takes or refuses its share by itself.
func (t *Table) Push(b *Batch, gradients []float32) (*Pushed, error) {
	return t.push(b, gradients, nil)
}

func (t *Table) push(b *Batch, gradients []float32, stream *Stream) (*Pushed, error) {
	if err := b.check(t.partition); err != nil {
		return nil, err
	}
	if len(gradients) != b.rows()*t.Dim {
		return nil, &Error{Invalid, fmt.Sprintf("%d gradients for %d rows of %d", len(gradients), b.rows(), t.Dim)}
	}
	t.client.pushing.Lock()
	defer t.client.pushing.Unlock()
	var answers []fields
	statuses := newStatuses(b)
	begin := func(shards []*shard) ([]float32, error) {
		answers = make([]fields, len(shards))
		if stream != nil && stream.opened > 0 {
			if err := stream.openOn(shards); err != nil {
				return nil, err
			}
		}
		if t.divides(b) && len(shards) > 1 {
			return b.divided(t.combiner), nil
		}
		return b.Weights, nil
	}
	is := plainPush
	if stream != nil {
		is = numberedPush
	}
	shares, err := t.placed(b, is, begin, func(i int, to *shard, s *share) (err error) {
		answers[i], err = t.pushShare(to, b, s, gradients, stream, statuses)
		return err
	})
	if err != nil {
		return nil, err
	}
	return t.sum(answers[:len(shares)], statuses), nil
}

func (t *Table) pushShare(to *shard, b *Batch, s *share, gradients []float32, stream *Stream, statuses []byte) (fields, error) {
	part, bins := t.part(b, s)
	grads := []byte{}
	for _, r := range s.rows {
		grads = appendFloats(grads, b.Wire, gradients[r*t.Dim:(r+1)*t.Dim])
	}
	params := s.parts(part)
	params["order"] = t.client.order
	if stream != nil {
		writer := stream.fields()
		writer["sequence"] = stream.Next
		params["writer"] = writer
	}
	answer, data, err := to.call("push", params, append(bins, grads)...)
	if again, _ := answer["again"].(bool); err != nil || again {
		return nil, err
	}
	if err = s.tell(statuses, data, 0); err != nil {
		return nil, err
	}
	return onlyPart(answer)
}

func (t *Table) sum(answers []fields, statuses []byte) *Pushed {
	pushed := &Pushed{Statuses: statuses}
	for _, answer := range answers {
		if answer == nil {
			return &Pushed{Again: true}
		}
		pushed.Step = number(answer["step"])
		pushed.Inserted += number(answer["inserted"])
		pushed.Full += number(answer["full"])
		pushed.Filtered += number(answer["filtered"])
		pushed.Evicted += number(answer["evicted"])
	}
	return pushed
}

// Erase removes the batch's keys, which has neither offsets nor weights.
func (t *Table) Erase(b *Batch) (*Erased, error) {
	if b.Offsets != nil || b.Weights != nil {
		return nil, &Error{Invalid, "an erase has neither offsets nor weights"}
	}
	if err := b.check(t.partition); err != nil {
		return nil, err
	}
	var counts []uint64
	statuses := newStatuses(b)
	begin := func(shards []*shard) ([]float32, error) {
		counts = append(counts, make([]uint64, len(shards)-len(counts))...) // of those before too: their keys are gone
		return nil, nil
	}
	_, err := t.placed(b, repeatable, begin, func(i int, to *shard, s *share) error {
		part, bins := t.part(&Batch{Slots: b.Slots, Status: b.Status}, s)
		answer, data, err := to.call("erase", s.parts(part), bins...)
		if err != nil {
			return err
		}
		erased, err := onlyPart(answer)
		counts[i] += number(erased["erased"])
		if err != nil {
			return err
		}
		return s.tell(statuses, data, 0)
	})
	erased := &Erased{Statuses: statuses}
	for _, n := range counts {
		erased.Erased += n
	}
	return erased, err
}

func appendKeys(to []byte, keys []uint64) []byte {
	for _, key := range keys {
		to = binary.LittleEndian.AppendUint64(to, key)
	}
	return to
}

func keysOf(data []byte) []uint64 {
	keys := make([]uint64, len(data)/8)
	for i := range keys {
		keys[i] = binary.LittleEndian.Uint64(data[8*i:])
	}
	return keys
}
