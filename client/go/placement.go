package embd

import (
	"errors"
	"fmt"
	"time"
)

const vshards = 1024

// staysBehind is for how long a server with an older map is behind. Then it was promoted without the move.
const staysBehind = time.Second

// placement is the map of vshards to shards: proto/PROTOCOL.md, "Placement".
type placement struct {
	version uint64
	told    uint64       // version in requests; 0: none, the map is even
	base    uint64       // shards of the even map that residues go by
	owners  [vshards]int // the shard of each vshard
	shards  []*shard
}

// common returns how many of the shards a cluster of n has, too.
func common(known []*shard, n int) int {
	if len(known) < n {
		return len(known)
	}
	return n
}

// clusterOf returns the map in an answer to "cluster", with the shards that the client knows, but for those that have left,
// and those that were added.
func clusterOf(answer fields, known []*shard, options Options) (*placement, error) {
	places, _ := answer["shards"].([]interface{})
	if len(places) == 0 {
		return nil, &Error{Protocol, "the cluster has 0 shards"}
	}
	p, err := placementOf(answer, len(places))
	if err != nil {
		return nil, err
	}
	p.shards = append(p.shards, known[:common(known, len(places))]...)
	for _, place := range places[len(p.shards):] {
		at, _ := place.(map[string]interface{})["address"].(string)
		p.shards = append(p.shards, &shard{address: at, options: options})
	}
	return p, nil
}

// placementOf returns the map in an answer to "cluster" of n shards. Where there is none, it is the even one.
func placementOf(answer fields, n int) (*placement, error) {
	even := placement{version: 1, base: uint64(n)}
	for v := range even.owners {
		even.owners[v] = v * n / vshards
	}
	p, filled, isMap := even, vshards, n > 0 && n <= vshards
	if given, is := answer["placement"].(map[string]interface{}); is && isMap {
		p.version, p.base, filled = number(given["version"]), number(given["base"]), 0
		runs, _ := given["runs"].([]interface{})
		for i := 0; i+1 < len(runs); i += 2 {
			shard, count := number(runs[i]), number(runs[i+1])
			if isMap = isMap && shard < uint64(n) && count <= uint64(vshards-filled); !isMap {
				break
			}
			for ; count > 0; count-- {
				p.owners[filled] = int(shard)
				filled++
			}
		}
	}
	if !isMap || filled < vshards || p.base == 0 || p.base > vshards {
		return nil, &Error{Protocol, fmt.Sprintf("the cluster's placement is not a map of 1024 vshards to %d shards", n)}
	}
	if p.base != even.base || p.owners != even.owners {
		p.told = p.version
	}
	return &p, nil
}

// mix64 is MurmurHash3's 64-bit finalizer.
func mix64(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// shardOf returns which shard has the key.
func (p *placement) shardOf(partition string, key uint64, slot uint16) int {
	switch partition {
	case "modulo":
		return p.residue(key)
	case "slot":
		return p.residue(uint64(slot))
	}
	return p.owners[mix64(key)>>54]
}

func (p *placement) residue(of uint64) int {
	r := of % (p.base * (vshards / p.base))
	return p.owners[(r%p.base*vshards+p.base-1)/p.base+r/p.base]
}

func isMoved(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == Moved
}

// splitsAgain says whether a request has to be split by another map. A push that a shard may have applied is never split
// again: its number there stands for other keys.
func splitsAgain(failures []error, isPush bool) bool {
	moved := 0
	for _, err := range failures {
		if isMoved(err) {
			moved++
		}
	}
	return moved == len(failures) || moved > 0 && !isPush
}

// kind is what a request does. A push with a number is applied once.
type kind int

const (
	repeatable kind = iota // a pull, an erase
	plainPush
	numberedPush
)

// leftOut returns the failures of the shards that the later map still has, and what the failures of the others come to:
// those without keys had nothing to do. A push with keys that may have been applied there stays as it is, unless it has a
// number: then it was applied by all shards before one of them left, or by none.
func leftOut(failures []error, shares []share, n int, is kind) []error {
	rest, isThere := append([]error{}, failures[:n]...), false
	for _, err := range rest {
		isThere = isThere || err == nil
	}
	for i, err := range failures[n:] {
		var e *Error
		hasNone := is != repeatable && len(shares[n+i].at) == 0
		if err == nil || hasNone || is == numberedPush && isThere {
			continue
		}
		if is == plainPush && errors.As(err, &e) && e.Code == Closed {
			rest = append(rest, err)
		} else {
			rest = append(rest, &Error{Moved, "the shard has left the cluster"})
		}
	}
	return rest
}

// isInDoubt says whether some shards have refused the request for its map, and it is not known what became of it on
// others. With its number it may be sent again as it is: those that applied it say so, the others refuse it, too.
func isInDoubt(failures []error) bool {
	moved, unknown := false, false
	for _, err := range failures {
		var e *Error
		moved = moved || isMoved(err)
		unknown = unknown || errors.As(err, &e) && e.mayRepeat()
	}
	return moved && unknown
}

// hasFailed says whether one of them has, otherwise than by a refusal.
func hasFailed(failures []error) bool {
	has := false
	for _, err := range failures {
		has = has || err != nil && !isMoved(err)
	}
	return has
}

// sent sends a request to all shards of the map, and returns each one's error, and how many of them have not left the
// cluster meanwhile. These get a numbered push again while it is in doubt.
func (c *Client) sent(p *placement, is kind, end time.Time, send func(i int, s *shard) error) ([]error, int) {
	failures, n := make([]error, len(p.shards)), len(p.shards)
	for pause := 10 * time.Millisecond; ; pause += 10 * time.Millisecond {
		if is != repeatable {
			c.order++ // also of a push that was refused: servers have seen that one
		}
		copy(failures, all(p.shards[:n], send))
		if hasFailed(failures[1:n]) && c.hasLost(p) {
			n = common(p.shards, len(c.shards()))
		}
		if is != numberedPush || !isInDoubt(failures[:n]) || time.Now().Add(pause).After(end) {
			return failures, n
		}
		time.Sleep(pause)
	}
}

// placed sends each shard its share of the batch. Where shards have another map, it asks for that one, splits the whole
// batch again and sends it again, until the timeout of a call has passed. `begin` is called before each time, with the
// shards that there are then, and returns the weights of keys.
func (t *Table) placed(b *Batch, is kind, begin func(shards []*shard) ([]float32, error),
	send func(i int, to *shard, s *share) error) ([]share, error) {
	c := t.client
	end, behind := time.Now().Add(c.shards()[0].options.Timeout), time.Time{}
	for pause := 10 * time.Millisecond; ; pause += 10 * time.Millisecond {
		p := c.placement.Load()
		ids, err := t.idsOn(p.shards)
		var weights []float32
		if err == nil {
			weights, err = begin(p.shards)
		}
		if err != nil && c.hasLost(p) {
			continue
		}
		if err != nil {
			return nil, err
		}
		shares := b.shares(t.partition, weights, p, ids)
		failures, n := c.sent(p, is, end, func(i int, s *shard) error { return send(i, s, &shares[i]) })
		if n < len(shares) {
			failures = leftOut(failures, shares, n, is)
			shares = shares[:n]
		}
		if !splitsAgain(failures, is != repeatable) || time.Now().Add(pause).After(end) {
			return shares, first(failures)
		}
		next, err := c.learn()
		if err != nil {
			return nil, err
		}
		if behind.IsZero() {
			behind = time.Now()
		}
		switch {
		case next.version > p.version, next.version < p.version && time.Since(behind) > staysBehind:
			c.placement.Store(next)
		default:
			time.Sleep(pause) // the server is behind
		}
	}
}
