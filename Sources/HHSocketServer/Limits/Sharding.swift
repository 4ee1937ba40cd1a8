// SPDX-License-Identifier: Apache-2.0
extension Array {
    /// The shard of a key, where what belongs to many keys is divided by their hashes, so that threads seldom wait for
    /// one another. The array must not be empty.
    func shard(of key: some Hashable) -> Element {
        self[Int(UInt(bitPattern: key.hashValue) % UInt(self.count))]
    }
}
