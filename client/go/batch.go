package embd

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Batch names the keys of a pull, push or erase.
type Batch struct {
	Keys    []uint64  // stored keys; see Table.Key
	Offsets []uint32  // row r pools the keys Offsets[r] to Offsets[r+1]-1; nil: each key is a row
	Slots   []uint16  // of each row, in tables with partition "slot" and only there
	Weights []float32 // of each key, with Offsets only; nil: 1
	Scores  []float32 // push to an evict_score table: of each key, finite, or -Inf: none; nil: none
	Wire    string    // dtype of values and gradients on the wire: "f32" (also ""), "f16", "bf16"
	Status  bool      // ask for the status of each key
	Zero    bool      // pull: keys without a row give zeros, and get none
	LR      float32   // push: learning rate of this step; 0: the table's
	Sums    bool      // rows of mean and sqrtn tables are sums, and gradients are those of sums
}

func (b *Batch) rows() int {
	if b.Offsets == nil {
		return len(b.Keys)
	}
	return len(b.Offsets) - 1
}

// span returns the keys of row r.
func (b *Batch) span(r int) (begin, end int) {
	if b.Offsets == nil {
		return r, r + 1
	}
	return int(b.Offsets[r]), int(b.Offsets[r+1])
}

func (b *Batch) slot(r int) uint16 {
	if b.Slots == nil {
		return 0
	}
	return b.Slots[r]
}

// check finds what would make shares go out of range. The server checks everything else.
func (b *Batch) check(partition string) error {
	if b.Offsets != nil && (len(b.Offsets) == 0 || int(b.Offsets[len(b.Offsets)-1]) != len(b.Keys)) {
		return &Error{Invalid, fmt.Sprintf("the last offset is not the number of keys, %d", len(b.Keys))}
	}
	for r := 0; r+1 < len(b.Offsets); r++ {
		if b.Offsets[r+1] < b.Offsets[r] {
			return &Error{Invalid, fmt.Sprintf("Offsets[%d] is %d, below Offsets[%d]", r+1, b.Offsets[r+1], r)}
		}
	}
	if (b.Slots != nil || partition == "slot") && len(b.Slots) != b.rows() {
		return &Error{Invalid, fmt.Sprintf("%d slots for %d rows", len(b.Slots), b.rows())}
	}
	if b.Weights != nil && len(b.Weights) != len(b.Keys) {
		return &Error{Invalid, fmt.Sprintf("%d weights for %d keys", len(b.Weights), len(b.Keys))}
	}
	if b.Scores != nil && len(b.Scores) != len(b.Keys) {
		return &Error{Invalid, fmt.Sprintf("%d scores for %d keys", len(b.Scores), len(b.Keys))}
	}
	return nil
}

// A share is what one shard gets of a batch.
type share struct {
	keys, offsets, slots, weights, scores []byte // as they travel; offsets begin with 0
	placement                             uint64 // version of the map that they were split by; 0: the even one
	rows                                  []int  // of the batch, in its order
	at                                    []int  // place of each key in the batch
	isWeighted                            bool
	table                                 uint64 // its id on the shard
	isOnly                                bool   // there is one shard
}

// shares gives each key to its shard. A row has a share wherever it has keys; one without keys goes to a single shard.
func (b *Batch) shares(partition string, weights []float32, p *placement, ids []uint64) []share {
	shares := make([]share, len(ids))
	for s, id := range ids {
		shares[s] = share{placement: p.told, offsets: make([]byte, 4), isWeighted: weights != nil, table: id, isOnly: len(ids) == 1}
	}
	for r := 0; r < b.rows(); r++ {
		begin, end := b.span(r)
		if begin == end {
			shares[p.shardOf(partition, 0, b.slot(r))].beginRow(b, r)
		}
		for k := begin; k < end; k++ {
			s := &shares[p.shardOf(partition, b.Keys[k], b.slot(r))]
			if len(s.rows) == 0 || s.rows[len(s.rows)-1] != r {
				s.beginRow(b, r)
			}
			s.addKey(b, k, weights)
		}
	}
	return shares
}

func (s *share) beginRow(b *Batch, r int) {
	s.rows = append(s.rows, r)
	s.offsets = binary.LittleEndian.AppendUint32(s.offsets, uint32(len(s.at)))
	if b.Slots != nil {
		s.slots = binary.LittleEndian.AppendUint16(s.slots, b.Slots[r])
	}
}

func (s *share) addKey(b *Batch, k int, weights []float32) {
	s.keys = binary.LittleEndian.AppendUint64(s.keys, b.Keys[k])
	s.at = append(s.at, k)
	binary.LittleEndian.PutUint32(s.offsets[len(s.offsets)-4:], uint32(len(s.at)))
	if s.isWeighted {
		s.weights = binary.LittleEndian.AppendUint32(s.weights, math.Float32bits(weights[k]))
	}
	if b.Scores != nil {
		s.scores = binary.LittleEndian.AppendUint32(s.scores, math.Float32bits(b.Scores[k]))
	}
}

// divisor is what a row of n keys is divided by. The conversions keep every product rounded to float32.
func divisor(combiner string, n int, weights []float32) float32 {
	sum := float32(0)
	if weights == nil {
		sum = float32(n)
	}
	for _, w := range weights {
		if combiner == "sqrtn" {
			w = float32(w * w)
		}
		sum = float32(sum + w)
	}
	if sum == 0 || combiner != "mean" && combiner != "sqrtn" {
		return 1
	}
	if combiner == "sqrtn" {
		return float32(math.Sqrt(float64(sum)))
	}
	return sum
}

func (b *Batch) divisor(combiner string, r int) float32 {
	begin, end := b.span(r)
	if b.Weights == nil {
		return divisor(combiner, end-begin, nil)
	}
	return divisor(combiner, end-begin, b.Weights[begin:end])
}

// divided returns the weights that make gradients of finished rows those of sums: weight / divisor.
func (b *Batch) divided(combiner string) []float32 {
	weights := make([]float32, len(b.Keys))
	for r := 0; r < b.rows(); r++ {
		by := b.divisor(combiner, r)
		begin, end := b.span(r)
		for k := begin; k < end; k++ {
			weights[k] = 1
			if b.Weights != nil {
				weights[k] = b.Weights[k]
			}
			weights[k] /= by
		}
	}
	return weights
}
