// SPDX-License-Identifier: Apache-2.0
extension Array {
    /// The shard of a key, for data that is divided by the hashes of its keys, so that threads seldom wait for one
    /// another. The array must not be empty.
    func shard(of key: some Hashable) -> Element {
        self[Int(UInt(bitPattern: key.hashValue) % UInt(self.count))]
    }
}
