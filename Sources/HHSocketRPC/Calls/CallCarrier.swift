// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The way in which the attempts of one kind of call leave: plain requests, or the openings of streams. On the socket
/// thread.
protocol CallCarrier: AnyObject {
    /// Refuses a request that can never be sent, so that it fails without waiting for a connection.
    func check(_ request: SocketRequest, of flight: CallFlight, in turn: inout Turn) throws(SocketError)

    /// The deadline of a whole call that starts now.
    ///
    /// - Parameter limit: The time by which it must have been sent.
    func deadline(of request: SocketRequest, within limit: NIODeadline, now: NIODeadline) -> NIODeadline

    /// Sends the request of an attempt that has a serial.
    ///
    /// - Parameters:
    ///   - connection: The connection that calls are sent on.
    ///   - engine: The owner of the call.
    /// - Throws: The error that ends the attempt, of which nothing was sent.
    func carry(
        _ departure: Departure,
        serial: UInt32,
        on connection: ClientConnection?,
        for engine: CallEngine,
        in turn: inout Turn
    ) throws(SocketError) -> Carried

    /// Asks the server to stop working on a call that has ended, and withdraws what waits to be sent.
    func abandon(_ attempt: CallAttempt, in turn: inout Turn)

    /// Whether the call may be sent once more.
    func mayRepeat(_ flight: CallFlight) -> Bool

    /// An attempt of a call with interceptors has failed, which may request another.
    func attemptFailed(_ flight: CallFlight, _ error: SocketError)

    /// The error of a call whose time is up.
    func timedOut(_ attempt: CallAttempt, by limit: TimeLimit, for engine: CallEngine) -> SocketError

    /// The call is about to complete.
    func completes(_ flight: CallFlight)
}

/// A call in the table of which an attempt begins.
struct Departure {
    let flight: CallFlight
    let key: DispatchKey
    let priority: FramePriority

    /// - Parameter priority: Nil for the call's present one.
    init(_ flight: CallFlight, _ key: DispatchKey, priority: FramePriority? = nil) {
        self.flight = flight
        self.key = key
        self.priority = priority ?? flight.priority
    }
}

/// A limit of time that a call has reached.
enum TimeLimit {
    /// The deadline of the call.
    case deadline
    /// The time by which its answer had to begin.
    case firstResponse
}

/// The result of ``CallCarrier/carry(_:serial:on:for:in:)``.
enum Carried {
    /// The request is being sent.
    case sent
    /// It waits until the server reads.
    case queued
    /// It waits, was recorded as queued (``CallEngine/isQueued(_:)``), and ``CallEngine/willSend(type:serial:on:in:)``
    /// reports its sending.
    case reported
    /// Nothing was sent: the call stays in the table without an attempt until the carrier continues it, by
    /// ``CallEngine/attemptAgain(_:_:isPatient:isReturning:in:)``.
    case parked
}
