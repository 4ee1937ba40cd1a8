// SPDX-License-Identifier: Apache-2.0
// What the sources use of CryptoKit.

public protocol Digest: Hashable, Sequence, Sendable where Element == UInt8 {}

extension Digest {
    public func makeIterator() -> Array<UInt8>.Iterator { fatalError() }
}

public struct SHA256Digest: Digest {}

public struct SHA256: Sendable {
    public init() {}
    public mutating func update(bufferPointer: UnsafeRawBufferPointer) {}
    public func finalize() -> SHA256Digest { fatalError() }
}

public enum Insecure {
    public struct SHA1Digest: Digest {}

    public struct SHA1: Sendable {
        public init() {}
        public mutating func update(bufferPointer: UnsafeRawBufferPointer) {}
        public func finalize() -> Insecure.SHA1Digest { fatalError() }
    }
}
