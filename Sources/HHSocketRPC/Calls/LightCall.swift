// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The handler of a call's result.
typealias CallHandler = @Sendable (CallOutcome) -> Void

/// A call without a task, from its request to its answer: it has no object.
///
/// Almost all calls of ``SocketClient/dispatch(_:completionHandler:)`` and ``SocketClient/data(for:)`` on the socket
/// thread are light. Any event other than its answer converts it into a ``SocketTask``.
struct LightCall {
    /// A caller that awaits the result; nil means that the call cannot be light.
    typealias Waiter = UnsafeContinuation<CallOutcome?, Never>

    /// The receiver of the result: one of the two at most, notified once, by the code that removes the call from the
    /// table. Not an enumeration, which would be copied rather than moved.
    struct Receiver {
        let handler: CallHandler?
        let waiter: Waiter?
    }

    let identifier: Int
    private(set) var request: SocketRequest
    // Both in one property, since a function alone has no address.
    private(set) var receiver: Receiver
    /// The time at which the request was sent; in the distant past if it was not.
    let sent: NIODeadline

    @inline(__always)
    init(
        _ identifier: Int,
        _ request: consuming SocketRequest,
        _ handler: consuming CallHandler?,
        _ waiter: Waiter? = nil,
        sent: NIODeadline = .distantPast
    ) {
        self.identifier = identifier
        self.request = consume request
        self.receiver = Receiver(handler: consume handler, waiter: waiter)
        self.sent = sent
    }

    /// Moves a call out of its memory; only its receiver remains to be used.
    @inline(__always)
    static func takeReceiver(at place: UnsafeMutablePointer<LightCall>) -> Receiver {
        // Moved out separately: a copy would count references.
        guard let request = place.pointer(to: \.request), let receiver = place.pointer(to: \.receiver) else {
            preconditionFailure("stored properties have addresses")
        }
        request.deinitialize(count: 1)
        return receiver.move()
    }
}

/// The handler of an answered light call, which runs after the units of this read have been processed.
struct AnsweredLightCall: TurnHandler {
    private struct Answer {
        let handler: CallHandler
        let response: SocketResponse

        consuming func run() {
            self.handler(.success(self.response))
        }
    }

    private let answer: Answer

    init(handler: consuming @escaping CallHandler, response: consuming SocketResponse) {
        self.answer = Answer(handler: handler, response: response)
    }

    static func run(at place: UnsafeMutableRawPointer) {
        place.assumingMemoryBound(to: Answer.self).move().run()
    }
}

/// The caller of an answered light call, which continues where handlers run.
struct AnsweredWaiter: TurnHandler {
    let continuation: LightCall.Waiter
    let response: SocketResponse

    static func run(at place: UnsafeMutableRawPointer) {
        place.takeHandler(Self.self).run()
    }

    private consuming func run() {
        self.continuation.resume(returning: .success(self.response))
    }
}
