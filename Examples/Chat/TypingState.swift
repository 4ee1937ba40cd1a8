// SPDX-License-Identifier: Apache-2.0
/// The typing state of the user, for the stream of each connection.
actor TypingState {
    private var isTyping = false
    private var sink: AsyncStream<Bool>.Continuation?

    /// Begins the changes for a new connection, and ends those for the previous one.
    func changes() -> AsyncStream<Bool> {
        let (changes, sink) = AsyncStream.makeStream(of: Bool.self, bufferingPolicy: .bufferingNewest(1))
        self.sink?.finish()
        self.sink = sink
        if self.isTyping { sink.yield(true) }
        return changes
    }

    func set(_ isTyping: Bool) {
        self.isTyping = isTyping
        self.sink?.yield(isTyping)
    }

    /// Records that a line was sent, which itself shows that the typing has ended.
    func hasSaid() { self.isTyping = false }
}
