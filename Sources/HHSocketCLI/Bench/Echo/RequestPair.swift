import HHSocketRPC

/// Two requests used in turn.
///
/// While a completion handler runs, its task may still hold the request that it was made with. The next body, stamped
/// in the other one, is nobody else's, so nothing is copied and nothing allocated. On the socket's thread, where a task
/// that nobody holds is gone before its handler runs, one request is enough, and half the memory is passed through.
struct RequestPair: Sendable {
    private let takesTurns: Bool
    private var isOddNext = false
    private var even: SocketRequest
    private var odd: SocketRequest

    init(_ body: EchoBody, takesTurns: Bool = true) {
        self.takesTurns = takesTurns
        self.even = SocketRequest(type: BuiltIn.echo, body: body.template)
        self.odd = self.even
    }

    /// The request of call `number`.
    @inline(__always)
    mutating func next(_ number: UInt32) -> SocketRequest {
        if self.isOddNext {
            self.isOddNext = false
            EchoBody.stamp(number, into: &self.odd.body)
            return self.odd
        } else {
            self.isOddNext = self.takesTurns
            EchoBody.stamp(number, into: &self.even.body)
            return self.even
        }
    }
}
