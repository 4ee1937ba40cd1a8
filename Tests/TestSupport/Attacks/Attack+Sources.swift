// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOConcurrencyHelpers

extension HostileClient.Attack {
    /// The attackers' addresses.
    final class Sources: Sendable {
        private let addresses: [String]
        private let count = NIOLockedValueBox(0)

        init(_ addresses: [String]) { self.addresses = addresses }

        /// Returns each of them in turn; nil if there are none.
        func next() -> String? {
            guard !self.addresses.isEmpty else { return nil }
            let number = self.count.withLockedValue { count in
                defer { count += 1 }
                return count
            }
            return self.addresses[number % self.addresses.count]
        }
    }
}
