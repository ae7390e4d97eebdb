package embd

import (
	"bufio"
	"fmt"
	"net"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// Codes of errors, as in proto/PROTOCOL.md.
const (
	Invalid       = 1
	Malformed     = 2
	TooLarge      = 3
	UnknownMethod = 4
	UnknownTable  = 5
	Exists        = 6
	Unsupported   = 7
	Full          = 8
	NotFinite     = 9
	NoMemory      = 10
	Busy          = 11
	Draining      = 12
	Unreachable   = 13
	Closed        = 15 // the connection was lost during the call: a push may have been applied
	Protocol      = 16
	Denied        = 20
	Gap           = 21
	Forgotten     = 22
	Loading       = 24
	Moved         = 26 // keys have moved between shards, and the request could not be split again
)

// Error is what a server refused a request with, or a failure to reach it. A refused request has changed nothing on
// that shard; other shards may have applied their share of a push.
type Error struct {
	Code int
	Text string
}

func (e *Error) Error() string { return fmt.Sprintf("embd: error %d: %s", e.Code, e.Text) }

// mayRepeat says whether the same request may succeed later. A push whose connection was lost is safe to repeat only
// with a number.
func (e *Error) mayRepeat() bool {
	switch e.Code {
	case NoMemory, Busy, Draining, Unreachable, Closed, Loading:
		return true
	}
	return false
}

// A connection to one shard. It is made at the first call, and again after a failure.
type shard struct {
	address string
	options Options
	mutex   sync.Mutex // one call at a time
	conn    net.Conn
	reader  *msgpack.Decoder
	msgid   uint32
}

type fields = map[string]interface{}

// call sends a request and reads its answer: the map, and the bins.
func (s *shard) call(method string, params fields, bins ...[]byte) (fields, [][]byte, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.conn != nil && isEnded(s.conn) {
		s.hangUp()
	}
	if s.conn == nil {
		if err := s.dial(); err != nil {
			return nil, nil, err
		}
	}
	return s.exchange(method, params, bins)
}

// isEnded says whether the server has ended the connection. What is not sent there has certainly not been applied.
func isEnded(conn net.Conn) bool {
	conn.SetDeadline(time.Time{}) // that of the call before has passed
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return true
	}
	var n int
	var why error
	err = raw.Read(func(fd uintptr) bool {
		n, _, why = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	})
	return err != nil || n > 0 || why != syscall.EAGAIN && why != syscall.EINTR
}

func (s *shard) dial() error {
	conn, err := net.DialTimeout("tcp", s.address, s.options.Timeout)
	if err != nil {
		return &Error{Unreachable, err.Error()}
	}
	s.conn, s.reader = conn, msgpack.NewDecoder(bufio.NewReaderSize(conn, 1<<16))
	hello := fields{"protocol": 1, "client": "embd-go", "client_id": s.options.id}
	if s.options.Token != "" {
		hello["token"] = s.options.Token
	}
	answer, _, err := s.exchange("hello", hello, nil)
	if loading, is := answer["loading"].(string); err == nil && is {
		err = &Error{Loading, loading}
	}
	if err != nil {
		s.hangUp()
	}
	return err
}

// leave ends the connection to a shard that has left the cluster, once a call has ended that waits there.
func (s *shard) leave() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.hangUp()
}

func (s *shard) hangUp() {
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
}

func (s *shard) exchange(method string, params fields, bins [][]byte) (fields, [][]byte, error) {
	s.msgid++
	s.conn.SetDeadline(time.Now().Add(s.options.Timeout))
	items := []interface{}{params}
	for _, bin := range bins {
		if bin == nil {
			bin = []byte{} // nil would travel as nil, and not as a bin
		}
		items = append(items, bin)
	}
	message, err := msgpack.Marshal([]interface{}{0, s.msgid, method, items})
	if err != nil {
		return nil, nil, &Error{Invalid, err.Error()}
	}
	if _, err = s.conn.Write(message); err != nil {
		return nil, nil, s.lost(err)
	}
	return s.receive()
}

// lost ends a connection whose stream is not in step any more.
func (s *shard) lost(err error) error {
	s.hangUp()
	return &Error{Closed, err.Error()}
}

// receive reads [1, msgid, error, result]. Calls are made one by one, so the next answer is that of the last request.
func (s *shard) receive() (fields, [][]byte, error) {
	message, err := s.reader.DecodeSlice()
	if err != nil {
		return nil, nil, s.lost(err)
	}
	if len(message) != 4 || number(message[0]) != 1 || number(message[1]) != uint64(s.msgid) {
		return nil, nil, s.lost(fmt.Errorf("%s sent something else than the answer", s.address))
	}
	if refusal, is := message[2].([]interface{}); is && len(refusal) == 2 {
		text, _ := refusal[1].(string)
		return nil, nil, &Error{int(number(refusal[0])), text}
	}
	result, _ := message[3].([]interface{})
	return split(result)
}

// split takes a result apart: [map, bin, bin, ...].
func split(result []interface{}) (fields, [][]byte, error) {
	if len(result) == 0 {
		return fields{}, nil, nil
	}
	answer, isMap := result[0].(map[string]interface{})
	var bins [][]byte
	for _, item := range result[1:] {
		bin, isBin := item.([]byte)
		isMap = isMap && isBin
		bins = append(bins, bin)
	}
	if !isMap {
		return nil, nil, &Error{Protocol, "the result is not a map and bins"}
	}
	return answer, bins, nil
}

// number is a field's unsigned integer, in whatever encoding it came; 0 where there is none.
func number(value interface{}) uint64 {
	switch v := reflect.ValueOf(value); {
	case !v.IsValid():
		return 0
	case v.CanInt():
		return uint64(v.Int())
	case v.CanUint():
		return v.Uint()
	}
	return 0
}
