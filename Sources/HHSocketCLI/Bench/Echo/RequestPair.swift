// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import NIOCore

/// Two requests used alternately.
///
/// While a completion handler runs, its task may still hold its request. The body of the other one is uniquely
/// referenced, so it is stamped without a copy or an allocation. On the socket's thread, where an unreferenced task is
/// released before its handler runs, one request suffices, which halves the memory that is touched.
struct RequestPair: Sendable {
    private let type: UInt32
    private let alternates: Bool
    private var isOddNext = false
    // Bodies and not requests: of those more references would be counted.
    private var even: ByteBuffer
    private var odd: ByteBuffer

    init(_ body: EchoBody, alternates: Bool = true) {
        self.type = body.type
        self.alternates = alternates
        self.even = body.template
        self.odd = body.template
    }

    /// Returns the request of call `number`.
    @inline(__always)
    mutating func next(_ number: UInt32) -> SocketRequest {
        if self.isOddNext {
            self.isOddNext = false
            EchoBody.stamp(number, into: &self.odd)
            return SocketRequest(type: self.type, body: self.odd, options: CallOptions())
        } else {
            self.isOddNext = self.alternates
            EchoBody.stamp(number, into: &self.even)
            return SocketRequest(type: self.type, body: self.even, options: CallOptions())
        }
    }
}
