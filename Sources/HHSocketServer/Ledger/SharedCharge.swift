// SPDX-License-Identifier: Apache-2.0
/// The charge for memory that many connections share, until the last of them has released it.
final class SharedCharge: Sendable {
    private let ledger: Ledger
    private let bytes: Int

    init(_ ledger: Ledger, bytes: Int) {
        self.ledger = ledger
        self.bytes = bytes
        ledger.add(bytes, shard: 0)
    }

    deinit { self.ledger.add(-self.bytes, shard: 0) }
}
