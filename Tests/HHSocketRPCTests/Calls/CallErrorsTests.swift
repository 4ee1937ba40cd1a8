// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

@testable import HHSocketRPC

/// The texts of calls that fail on this side, by the numbers that they are made of.
@Suite struct CallErrorsTests {
    private typealias Timeout = CallErrors.Timeout

    private static let server = Endpoint(host: "one", port: 1)
    private static let other = Endpoint(host: "two", port: 2)

    // MARK: Time

    /// A call whose time is up, and its error.
    struct Row: Sendable, CustomTestStringConvertible {
        var call: CallErrors.Timeout
        var message: String
        var endpoint: Endpoint? = CallErrorsTests.server
        var delivery = SocketError.Delivery.notSent

        var testDescription: String { self.message }
    }

    private static func call(
        _ stage: CallErrors.Timeout.Stage,
        _ limit: CallErrors.Timeout.Limit = .timeout(.seconds(8)),
        serial: UInt32? = nil,
        server: Endpoint? = nil,
        _ change: (inout CallErrors.Timeout) -> Void = { _ in }
    ) -> CallErrors.Timeout {
        var call = CallErrors.Timeout(type: 101, stage: stage, limit: limit, serial: serial, server: server)
        call.currentServer = Self.server
        change(&call)
        return call
    }

    private static func progress(_ sent: Int, _ received: Int = 0, of expected: Int? = nil) -> CallErrors.Timeout.Stage
    {
        .sent(CallErrors.Timeout.Progress(length: 10, sent: sent, received: received, expected: expected))
    }

    static let timeouts: [Row] = [
        Row(call: call(.waiting(succeeds: false)), message: "no connection to one:1 within 8.0 seconds (type 101)"),
        Row(
            call: call(.waiting(succeeds: false)) { $0.currentServer = nil },
            message: "no connection to the server within 8.0 seconds (type 101)",
            endpoint: nil
        ),
        Row(
            call: call(.waiting(succeeds: true)),
            message: "no successor of the connection to one:1, which ends, within 8.0 seconds (type 101)"
        ),
        Row(
            call: call(.queued, serial: 7, server: other),
            message: "two:2 did not read within 8.0 seconds (type 101, serial 7)",
            endpoint: other
        ),
        Row(
            call: call(progress(10), serial: 7, server: server),
            message: "no answer from one:1 within 8.0 seconds (type 101, serial 7)",
            delivery: .sentUnknown
        ),
        Row(
            call: call(progress(3), .deadline, serial: 7, server: server),
            message:
                "no answer from one:1, 3 of whose 10 bytes had left, before the request's deadline (type 101, serial 7)",
            delivery: .sentUnknown
        ),
        Row(
            call: call(progress(10, 4, of: 9), serial: 7, server: server),
            message: "no answer from one:1, which had come to 4 of 9 bytes, within 8.0 seconds (type 101, serial 7)",
            delivery: .sentUnknown
        ),
        Row(
            call: call(progress(10, 4), serial: 7, server: server),
            message: "no answer from one:1, which had come to 4 of 4 bytes, within 8.0 seconds (type 101, serial 7)",
            delivery: .sentUnknown
        ),
        Row(
            call: call(progress(10, 0, of: 0), serial: 7, server: server) { $0.silence = "; it was silent" },
            message:
                "no answer from one:1, which had come to 0 of 0 bytes, within 8.0 seconds (type 101, serial 7); it was silent",
            delivery: .sentUnknown
        ),
        Row(
            call: call(.backingOff) {
                $0.attempts = 2
                $0.lastFailure = SocketError(.unknown, message: "unknown here")
            },
            message: """
                every attempt failed, and the next was still to come, within 8.0 seconds (type 101); the attempt before (of \
                2): unknown here
                """
        ),
        Row(
            call: call(.parked),
            message: "its body was being compressed or decompressed, and within 8.0 seconds (type 101)"
        ),
        Row(
            call: call(.intercepted, .deadline) {
                $0.currentServer = nil
                $0.lastConnect = SocketError(.connectionLost, message: "refused", endpoint: CallErrorsTests.other)
            },
            message: """
                an interceptor was running, and did not return before the request's deadline (type 101); the last connect \
                error: refused
                """,
            endpoint: other
        ),
    ]

    @Test(arguments: timeouts) func aTimeoutNamesItsStage(_ row: Row) {
        let error = CallErrors.timedOut(row.call)
        #expect(error.code == .timeout)
        #expect(error.message == row.message)
        #expect(error.endpoint == row.endpoint)
        #expect(error.serial == row.call.serial)
        #expect(error.delivery == row.delivery)
    }

    /// The attempt to connect is the cause that is nearer.
    @Test(arguments: [true, false]) func theCauseIsTheLastFailure(_ hasConnected: Bool) throws {
        let failure = SocketError(.unknown, message: "unknown here")
        let refusal = SocketError(.connectionLost, message: "refused")
        let error = CallErrors.timedOut(
            Self.call(.waiting(succeeds: false)) {
                $0.lastFailure = failure
                $0.lastConnect = hasConnected ? nil : refusal
            }
        )
        #expect(try #require(error.underlying as? SocketError).message == (hasConnected ? failure : refusal).message)
    }

    @Test(arguments: [(nil, "type 101"), (7, "type 101, serial 7")] as [(UInt32?, String)])
    func anAnswerThatDidNotBeginNamesItsLimit(_ serial: UInt32?, _ serialText: String) {
        let error = CallErrors.firstResponseTimedOut(
            101,
            serial: serial,
            after: .seconds(2),
            at: Self.server,
            silence: "; it was silent"
        )
        #expect(
            error.message == """
                no answer from one:1 began within 2.0 seconds of the request's leaving (firstResponseTimeout; \
                \(serialText)); it was silent
                """
        )
        #expect(error.code == .timeout && error.delivery == .sentUnknown && error.serial == serial)
    }

    @Test(
        arguments: [
            (nil, .standard, ""), ("no frame", .standard, "; no frame"),
            ("no frame", .mars, "; no frame; is the wire format \(WireFormat.mars) the server's?"),
        ] as [(String?, WireFormat, String)]
    )
    func silenceAdvisesWhereTheFormatIsNotTheUsual(_ silence: String?, _ format: WireFormat, _ text: String) {
        #expect(CallErrors.silence(silence, in: format) == text)
    }

    // MARK: Limits

    static let limits: [(SocketError, SocketError.Code, String)] = [
        (
            CallErrors.tooManyInFlight(3, at: server), .tooManyInFlight,
            "3 calls to one:1 are in flight already (maximumInFlight); wait for some to complete"
        ),
        (
            CallErrors.queueFull(4, bytes: 50, for: nil), .queueFull,
            """
            4 calls, 50 bytes, wait for a connection to the server already (maximumWaiting, maximumWaitingBytes)
            """
        ),
        (
            CallErrors.tooManyCalls(5, at: server), .queueFull,
            """
            5 calls have not completed yet (maximumInFlight and maximumWaiting together), those included whose \
            interceptors are at work or that wait to be sent again
            """
        ),
        (CallErrors.cancelled(101, at: server), .cancelled, "the call of type 101 was cancelled"),
        (
            CallErrors.interceptedTooLate(101), .cancelled,
            "the call of type 101 has completed, before an interceptor asked for its answer"
        ),
        (
            CallErrors.nextIsRunning, .invalidArgument,
            "an interceptor called next again before the call of it before had returned"
        ),
    ]

    @Test(arguments: limits.indices) func aLimitIsNamedWithItsNumbers(_ row: Int) {
        let (error, code, message) = Self.limits[row]
        #expect(error.code == code)
        #expect(error.message == message)
        #expect(error.notExecuted)
    }
}
