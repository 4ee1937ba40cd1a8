// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

/// The bounds of a server. Each limit has a default that does not affect well-behaved clients, a count in
/// ``ServerStatistics`` and an answer to the client; <doc:Operations> lists them all.
public struct ServerLimits: Sendable {
    // MARK: Connections

    /// The number of connections that may be open. Nil, the default: the number of file descriptors of the process,
    /// less 64 and a sixteenth of them for files, logs and outgoing connections; the server raises the soft limit of
    /// descriptors to the hard one when it starts. `Int.max`: no limit, until the system has no more descriptors.
    ///
    /// For a further connection the one that has been silent longest is closed, see ``minimumSilence``. If there is
    /// none, the further one receives a go-away, and is closed.
    public var maximumConnections: Int?
    /// The number of connections from one address: an IPv4 address, or an IPv6 network of 64 bits, the size of one
    /// customer's network. Nil, the default: half of ``maximumConnections``; `Int.max`: no limit. A further one
    /// receives a go-away, and is closed.
    ///
    /// The IPv6 networks of 56 and 48 bits around it may have twice and four times as many, but at most a quarter and a
    /// half of the connections that this leaves to others. A Unix domain socket has no address, and no such limit.
    public var maximumConnectionsPerAddress: Int?
    /// The rate of new connections from one address; 100 a second and 1,000 at once by default, which suffices for an
    /// office behind one address. Nil: no limit. A further one receives a go-away, and is closed. IPv6 networks of 56
    /// and 48 bits may make twice and four times as many.
    public var connectionRatePerAddress: RequestRate? = RequestRate(perSecond: 100, burst: 1_000)
    /// The silence after which a connection may be closed for a new one, if ``maximumConnections`` is reached or the
    /// process has hardly a descriptor left; 5 s by default; nil: never. The connection that has been silent longest is
    /// closed, with a go-away. One with a request in flight is not silent for the first minute; a stream whose handler
    /// waits for its client does not count.
    public var minimumSilence: Duration? = .seconds(5)
    /// The number of concurrent TLS handshakes, for each event loop. Further connections wait for their turn, once
    /// their first bytes have come, and addresses take turns; the time limit of the handshake begins with it.
    /// Handshakes whose client keeps the server waiting for more than 250 ms do not count.
    package var maximumHandshakes = 128
    /// The time for which a client may be silent, without heartbeats; then it is sent a go-away, and closed. 10 minutes
    /// by default; nil: no limit. A client whose request is in flight, or that has not read everything sent to it, is
    /// not idle; but the system then probes whether it still exists (TCP keep-alive).
    public var idleTimeout: Duration? = .seconds(600)
    /// The time within which the first frame of a connection must arrive after TLS, and a hello where that is required.
    /// Nil: no limit. Without TLS and without a required hello a client may be silent from the start.
    package var firstFrameTimeout: Duration? = .seconds(10)

    /// The number of connections that may have one identity (``ServerSession/authenticate(as:)``); 256 by default,
    /// since a person has few devices. Nil: no limit, for identities that represent many clients, such as a gateway's.
    /// Beyond it the oldest connection is sent a go-away, for 30 to 60 s, and closed: a client that has lost its
    /// network returns before its former connection is found to be dead.
    public var maximumSessionsPerIdentity: Int? = 256

    // MARK: Requests

    /// The number of requests of one connection that may be in flight; 1,024 by default. Further ones are answered
    /// ``/HHSocket/Status/overloaded`` (503). As many again may have been cancelled and not have returned yet. Requests
    /// that are answered on the event loop are never in flight.
    public var maximumInFlightPerConnection = 1_024
    /// The number of requests of all connections that may be in flight; 1,048,576 by default. Further ones are answered
    /// 503.
    public var maximumInFlight = 1 << 20
    /// The number of requests of all connections of one identity that may be in flight; 4,096 by default; nil: no
    /// limit. Further ones are answered 503. Clients without an identity do not count.
    public var maximumInFlightPerIdentity: Int? = 4_096
    /// The time that a handler may take, from the arrival of the request. Then the request is answered
    /// ``/HHSocket/Status/deadlineExceeded`` (408), its task is cancelled, and its serial is free; a handler that does
    /// not end then counts like one whose client has cancelled. Applies to handlers that are tasks; a type can have
    /// another time (``RouteLimits``).
    ///
    /// Nil, the default: no limit. Only the application knows how long its long polls take, and the memory of handlers
    /// that never return is bounded by the limits in flight of their connection, identity and type. A server without
    /// long polls should have one, such as 60 s.
    public var handlerTimeout: Duration?
    /// The rate at which the client of one connection may cancel requests that are in flight; 100 per second and 1,000
    /// at once by default; nil: no limit. Beyond it the client is sent a go-away, and closed: a cancelled request costs
    /// its task, but is no longer in flight, so the limits in flight do not bound such requests.
    public var cancelRate: RequestRate? = RequestRate(perSecond: 100, burst: 1_000)
    /// The rate of requests on one connection. Nil, the default: no limit. Further ones are answered 503.
    public var requestRate: RequestRate?
    /// The rate of requests of one address on all its connections together: an IPv4 address, or an IPv6 network of 64
    /// bits. Nil, the default: no limit. Further ones are answered 503. The 65,536 addresses with the latest requests
    /// are known; one that was forgotten starts over.
    public var requestRatePerAddress: RequestRate?
    /// The rate of requests of one identity (``ServerSession/identity``) on all its connections together. Nil, the
    /// default: no limit. Further ones are answered 503. The same number of identities as of addresses are known;
    /// clients without an identity have no limit here.
    public var requestRatePerIdentity: RequestRate?
    /// The rate of unproductive frames of one connection: heartbeats, cancels without effect, unknown types, wrong
    /// checksums, illegal requests and envelopes, ignored control frames, hellos, and a WebSocket's pings and pongs.
    /// Nil: no limit. A client that sends more is sent a go-away, and closed.
    package var unproductiveFrameRate: RequestRate? = RequestRate(perSecond: 1_000, burst: 20_000)
    /// The bounds of clients that have not identified themselves, if the server requires that.
    public var strangers = StrangerLimits()
    /// The adaptive limit on requests in flight, for each type separately, so that a slow type does not affect others.
    /// Nil, the default: none. Further ones are answered 503. Requests that are answered on the event loop do not
    /// count, nor does the time of repeats that wait for the answer to their idempotency key. A type can have another
    /// one (``RouteLimits``).
    public var concurrency: AdaptiveConcurrency?

    // MARK: Bytes

    /// The largest payload accepted, in bytes; 16 MiB by default. A client that announces a larger one is answered
    /// ``/HHSocket/Status/illegalLength`` (301) and its connection closes.
    public var maximumPayloadLength = Frame.defaultMaximumPayloadLength
    /// The largest payload of an answer or a push, before compression, in bytes; 16 MiB by default, which clients
    /// accept by default: a client that gets a larger one closes the connection, with all its other calls. A larger
    /// answer is replaced by ``/HHSocket/Status/illegalLength`` (301) and logged; a push is refused.
    public var maximumAnswerLength = Frame.defaultMaximumPayloadLength
    /// The number of consecutive frames with a wrong checksum that closes a connection; 1 at least.
    package var maximumCorruptRun = FrameDecoder.defaultMaximumCorruptRun
    /// The number of bytes that may be held for one connection: of a frame that is arriving, of requests in flight (as
    /// received, and decompressed), of answers and pushes that were not read, each with its memory: a body with its
    /// whole buffer, a request with its metadata and 8 KiB more for its task. 64 MiB by default. Further requests are
    /// answered 503; a client that does not read its answers is closed.
    public var maximumBufferedBytesPerConnection = 64 << 20
    /// The number of bytes that may be held for all connections, including the cost of the connections themselves (8
    /// KiB each, with TLS 64 KiB). 1 GiB by default.
    ///
    /// Once seven eighths are held, connections are closed until it is three quarters: first the one that holds most,
    /// where the memory of all connections of its address or identity counts, too, and the time since its last
    /// progress. Meanwhile nothing more is read of frames and messages of which 64 KiB or more have arrived, for 2 s at
    /// most. Only if that does not free enough in time and the limit is reached, further requests are answered 503, and
    /// further pushes to clients that are behind are dropped. Requests of a connection that holds less than a 256th of
    /// the limit, or 32 KiB, are still served until a sixteenth more is held.
    public var maximumBufferedBytes = 1 << 30
    /// The time within which the rest of a frame must make progress: if no byte arrives for this time, or fewer than
    /// 128 per second within a window of that length, the client is sent a go-away, and closed. 30 s by default; nil:
    /// no limit.
    public var readStallTimeout: Duration? = .seconds(30)
    /// The rate at which the rest of a frame must arrive, in bytes per second. See ``readStallTimeout``.
    package var minimumReadRate = 128
    /// The window within which at least 128 bytes per second must reach a client for which bytes wait. Otherwise it is
    /// closed: one to two windows after it stops taking them. 30 s by default; nil: no limit.
    public var writeStallTimeout: Duration? = .seconds(30)
    /// The number of unsent bytes that the system may hold for one connection, if it has such an option
    /// (`TCP_NOTSENT_LOWAT`). Nil: the system's own limit. For Unix domain sockets the system has a separate bound.
    package var kernelSendBuffer: Int? = 256 << 10

    // MARK: Pushes

    /// The number of pushes that may wait for a client that is behind. 1,024 by default.
    public var maximumWaitingPushes = 1_024
    /// The number of bytes of these pushes; 4 MiB by default. One push may always wait.
    public var maximumWaitingPushBytes = 4 << 20
    /// The treatment of a push beyond these limits; it is dropped by default.
    public var slowClients = SlowClientPolicy.dropPushes

    public init() {}
}

/// The treatment of a client that does not read its pushes.
public enum SlowClientPolicy: Hashable, Sendable {
    /// Further pushes to it are dropped until it has read some.
    case dropPushes
    /// The client is closed. When it returns, it can find out what it has missed.
    case disconnect
}

/// A limit on the rate of requests, of cancels, or of new connections: a bucket that fills at `perSecond` and holds
/// `burst`.
public struct RequestRate: Hashable, Sendable {
    /// The number per second in the long run; above 0.
    package var perSecond: Double
    /// The number at once; at least 1.
    package var burst: Int

    /// - Parameters:
    ///   - perSecond: The number per second in the long run; above 0.
    ///   - burst: The number at once, at least 1; by default as many as in one second.
    public init(perSecond: Double, burst: Int? = nil) {
        self.perSecond = perSecond
        self.burst = burst ?? max(1, Int(perSecond.rounded(.up).clamped(to: 1...1e9)))
    }
}

extension Double {
    /// Returns the value within a range; for NaN, its lower bound.
    fileprivate func clamped(to range: ClosedRange<Double>) -> Double {
        self.isNaN ? range.lowerBound : min(max(self, range.lowerBound), range.upperBound)
    }
}
