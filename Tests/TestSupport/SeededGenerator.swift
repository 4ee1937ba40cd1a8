// SPDX-License-Identifier: Apache-2.0
package import HHSocketTesting

/// The random numbers of tests, whose seed reproduces a failure.
package typealias SeededGenerator = SplitMix

extension SplitMix {
    package mutating func bytes(_ count: Int) -> [UInt8] {
        var result: [UInt8] = []
        result.reserveCapacity(count + 8)
        while result.count < count {
            withUnsafeBytes(of: self.next()) { result.append(contentsOf: $0) }
        }
        result.removeLast(result.count - count)
        return result
    }
}
