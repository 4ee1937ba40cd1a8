import HHSocketRPC

/// Two requests used in turn.
///
/// While a completion handler runs, its task still holds the request that it was made with. The next body, stamped in the
/// other one, is nobody else's, so nothing is copied and nothing allocated.
struct RequestPair: Sendable {
    private var even: SocketRequest
    private var odd: SocketRequest
    private var isOddNext = false

    init(_ body: EchoBody) {
        self.even = SocketRequest(type: BuiltIn.echo, body: body.template)
        self.odd = self.even
    }

    /// The request of call `number`.
    @inline(__always)
    mutating func next(_ number: UInt32) -> SocketRequest {
        defer { self.isOddNext.toggle() }
        if self.isOddNext {
            EchoBody.stamp(number, into: &self.odd.body)
            return self.odd
        } else {
            EchoBody.stamp(number, into: &self.even.body)
            return self.even
        }
    }
}
