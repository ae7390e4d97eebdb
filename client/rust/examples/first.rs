//! A table, pooled rows, a numbered push, an error. Run with a server: cargo run --example first 127.0.0.1:7700

use embd::{code, fields, Batch, Client, Options};

fn main() -> embd::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7700".into());
    let client = Client::connect(&address, &Options::default())?;
    let schema = fields(&[
        ("name", "items".into()),
        ("dim", 2.into()),
        ("combiner", "mean".into()),
        ("optimizer", fields(&[("kind", "sgd".into()), ("lr", 0.5.into())])),
        ("initializer", fields(&[("kind", "constant".into()), ("a", 1.into())])),
    ]);
    let table = client.create_table(&schema, &[])?;

    // Two rows: the mean of keys 7 and 9, and key 5 alone. Gradients are those of the two rows.
    let batch = Batch { offsets: Some(&[0, 2, 3]), ..Batch::of(&[7, 9, 5]) };
    let pushed = table.push(&batch, &[4.0, 0.0, 0.0, 2.0])?;
    assert_eq!((pushed.step, pushed.inserted), (1, 3));
    assert_eq!(table.pull(&batch)?.values, [0.0, 1.0, 1.0, 0.0]);

    // A numbered push is applied once, whatever happens to connections and servers meanwhile. Its stream has a name that
    // no other has: take real random numbers.
    let (high, low) = (std::process::id().into(), table.dim as u64);
    let mut stream = client.open_stream(high, low, 0, false)?;
    assert_eq!(stream.push(&table, &batch, &[4.0, 0.0, 0.0, 2.0])?.step, 2);

    assert_eq!(client.open_table("orders").err().map(|e| e.code), Some(code::UNKNOWN_TABLE));
    println!("ok");
    Ok(())
}
