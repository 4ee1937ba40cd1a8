// SPDX-License-Identifier: Apache-2.0
import Metrics
import NIOCore

/// The metrics of a connection. <doc:Connection> explains each.
///
/// No metric has the server as a dimension: a resolver may find any number of addresses, and a metric is kept forever.
///
/// A class, so that the work for each read copies nothing.
final class ConnectionMetrics {
    private let factory: any MetricsFactory
    private let connects: Counter
    private let switches: Counter
    private let goAways: Counter
    private var connectFailures: [SocketError.Code: Counter] = [:]
    private var disconnects: [SocketError.Code: Counter] = [:]
    private var reconnects: [SocketError.Code: Counter] = [:]
    private let readyTime: Timer
    private let heartbeatRoundTrip: Timer
    private let bytesSent: Counter
    private let bytesReceived: Counter
    private let framesSent: Counter
    private let framesReceived: Counter
    private let queuedBytes: Meter
    private var lastQueuedBytes = 0
    private var readySince: NIODeadline?
    /// The code with which the last connection was lost, until there is another one.
    private var loss: SocketError.Code?

    init(factory: any MetricsFactory) {
        self.factory = factory
        self.connects = Counter(label: "hhsocket.connects", factory: factory)
        self.switches = Counter(label: "hhsocket.switches", factory: factory)
        self.goAways = Counter(label: "hhsocket.go_aways", factory: factory)
        self.readyTime = Timer(label: "hhsocket.ready_time", dimensions: [], factory: factory)
        self.heartbeatRoundTrip = Timer(label: "hhsocket.heartbeat_round_trip", dimensions: [], factory: factory)
        self.bytesSent = Counter(label: "hhsocket.bytes_sent", factory: factory)
        self.bytesReceived = Counter(label: "hhsocket.bytes_received", factory: factory)
        self.framesSent = Counter(label: "hhsocket.frames_sent", factory: factory)
        self.framesReceived = Counter(label: "hhsocket.frames_received", factory: factory)
        self.queuedBytes = Meter(label: "hhsocket.queued_bytes", factory: factory)
    }

    func happened(_ event: SocketEvent, now: NIODeadline) {
        switch event {
        case .connected:
            self.connects.increment()
            if let loss = self.loss { self.count(loss, in: \.reconnects, "hhsocket.reconnects") }
            self.loss = nil
            self.readySince = now
        case .switched:
            self.connects.increment()
            self.switches.increment()
            self.endReady(now)
            self.readySince = now
        case .connectFailed(let error):
            self.count(error.code, in: \.connectFailures, "hhsocket.connect_failures")
        case .disconnected(let error):
            self.count(error.code, in: \.disconnects, "hhsocket.disconnects")
            self.loss = error.code
            self.endReady(now)
        case .goAway:
            self.goAways.increment()
        case .closed:
            self.loss = nil
            self.endReady(now)
        // Each attempt of a switch that failed was counted.
        case .connecting, .handshaking, .switchFailed, .serverFails, .waiting, .gaveUp, .networkChanged,
            .enteredBackground, .willEnterForeground:
            break
        }
    }

    private func endReady(_ now: NIODeadline) {
        guard let since = self.readySince else { return }
        self.readySince = nil
        self.readyTime.recordNanoseconds((now - since).nanoseconds)
    }

    private func count(
        _ cause: SocketError.Code,
        in counters: ReferenceWritableKeyPath<ConnectionMetrics, [SocketError.Code: Counter]>,
        _ label: String
    ) {
        let counter =
            self[keyPath: counters][cause]
            ?? Counter(label: label, dimensions: [("cause", "\(cause)")], factory: self.factory)
        self[keyPath: counters][cause] = counter
        counter.increment()
    }

    /// Records that our ping was answered.
    func heartbeatWasAnswered(after time: TimeAmount) {
        self.heartbeatRoundTrip.recordNanoseconds(time.nanoseconds)
    }

    /// Adds the traffic of a link since the last call.
    func take(_ traffic: Traffic) {
        if traffic.bytesSent > 0 {
            self.bytesSent.increment(by: traffic.bytesSent)
            self.framesSent.increment(by: traffic.framesSent)
        }
        if traffic.bytesReceived > 0 {
            self.bytesReceived.increment(by: traffic.bytesReceived)
            self.framesReceived.increment(by: traffic.framesReceived)
        }
    }

    /// Records the number of bytes that wait to be sent. Sockets that share a factory add up.
    func queued(bytes: Int) {
        guard bytes != self.lastQueuedBytes else { return }
        let change = Double(bytes - self.lastQueuedBytes)
        if change > 0 { self.queuedBytes.increment(by: change) } else { self.queuedBytes.decrement(by: -change) }
        self.lastQueuedBytes = bytes
    }
}
