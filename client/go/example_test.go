package embd_test

import (
	"embd"
	"errors"
	"fmt"
	"math/rand"
	"os"
)

func Example() {
	address := os.Getenv("EMBD_SERVER")
	if address == "" {
		address = "127.0.0.1:7700"
	}
	client, err := embd.Connect(address, embd.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	table, err := client.CreateTable(embd.Schema{
		"name": "items", "dim": 2, "combiner": "mean",
		"optimizer":   embd.Schema{"kind": "sgd", "lr": 0.5},
		"initializer": embd.Schema{"kind": "constant", "a": 1},
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}

	// Two rows: the mean of keys 7 and 9, and key 5 alone. Gradients are those of the two rows.
	batch := &embd.Batch{Keys: []uint64{7, 9, 5}, Offsets: []uint32{0, 2, 3}}
	pushed, err := table.Push(batch, []float32{4, 0, 0, 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	rows, err := table.Pull(batch)
	fmt.Println(pushed.Step, pushed.Inserted, rows.Values, err)

	// A numbered push is applied once, whatever happens to connections and servers meanwhile.
	stream, err := client.OpenStream(rand.Uint64(), rand.Uint64(), 0, false)
	if err != nil {
		fmt.Println(err)
		return
	}
	pushed, err = stream.Push(table, batch, []float32{4, 0, 0, 2})
	fmt.Println(pushed.Step, err)

	_, err = client.OpenTable("orders")
	var refused *embd.Error
	fmt.Println(errors.As(err, &refused) && refused.Code == embd.UnknownTable)
	// Output:
	// 1 3 [0 1 1 0] <nil>
	// 2 <nil>
	// true
}
