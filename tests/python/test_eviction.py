"""Eviction through the client: what a table counts is what the trainer named, by every plan of the client."""
import numpy as np

import clusters


class Eviction(clusters.ClusterTest):
    def with_rows(self, table, keys):
        statuses = np.zeros(len(keys), np.uint8)
        table.pull(keys, statuses=statuses)
        return [key for key, status in zip(keys, statuses) if status == 0]

    def push(self, table, keys):
        table.push(keys, np.ones((len(keys), table.schema.dim), np.float32))

    def evicts_after_many_occurrences(self, name, **fields):
        """Whether key 0, named 501 times in one push, loses its row to new keys; the others are named in five pushes."""
        table = self.client.create_table(name, 64, capacity=300, on_full="evict_lfu", combiner="concat", **fields)
        self.push(table, np.concatenate([np.arange(300), np.zeros(500, np.int64)]))
        for _ in range(4):
            self.push(table, np.arange(1, 300))
        self.push(table, np.arange(1000, 1100))
        return self.with_rows(table, [0, 1000]) == [1000]

    def test_occurrences_are_counted_if_the_table_says_so(self):
        self.assertTrue(self.evicts_after_many_occurrences("pushes"))
        self.assertFalse(self.evicts_after_many_occurrences("occurrences", lfu_occurrences=True))
        self.assertTrue(self.client.table("occurrences").schema.lfu_occurrences)

    def test_an_old_favourite_goes_if_counts_decay(self):
        for half_life, goes in (0, 1), (4, 0):
            table = self.client.create_table(f"half-life-{half_life}", 2, capacity=16, on_full="evict_lfu", combiner="concat",
                                             lfu_half_life=half_life)
            for _ in range(20):
                self.push(table, [0])
            for _ in range(10):
                self.push(table, np.arange(1, 16))
            for _ in range(2):
                self.push(table, np.arange(2, 16))
            self.push(table, [77])
            self.assertEqual([key for key in (0, 1) if key not in self.with_rows(table, [0, 1])], [goes])
            self.assertEqual(table.describe().lfu_half_life, half_life)


if __name__ == "__main__":
    clusters.main()
