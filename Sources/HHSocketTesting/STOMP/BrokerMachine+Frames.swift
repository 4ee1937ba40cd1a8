// SPDX-License-Identifier: Apache-2.0
import HHSocketSTOMP
import NIOCore

/// The commands.
extension BrokerMachine {
    mutating func handle(_ frame: STOMPFrame, on connection: Int) throws(Fault) {
        guard let version = self.peers[connection]?.version else {
            guard frame.command == .connect || frame.command == .stomp else {
                throw Fault("not connected", "The first frame is \(frame.command); it must be CONNECT or STOMP.")
            }
            return try self.connect(frame, on: connection)
        }
        switch frame.command {
        case .send: try self.send(frame, on: connection)
        case .subscribe: try self.subscribe(frame, version, on: connection)
        case .unsubscribe: try self.unsubscribe(frame, version, on: connection)
        case .ack: try self.settle(frame, version, isAck: true, on: connection)
        case .nack where version != .v1_0: try self.settle(frame, version, isAck: false, on: connection)
        case .begin: try self.begin(frame, on: connection)
        case .commit: try self.commit(frame, on: connection)
        case .abort: try self.abort(frame, on: connection)
        case .disconnect: break
        case .connect, .stomp: throw Fault("already connected", "A connection has one CONNECT.")
        default: throw Fault("unknown command", "STOMP \(version) has no command \(frame.command) for clients.")
        }
    }

    /// Returns the value of a required header.
    func required(_ name: String, _ frame: STOMPFrame) throws(Fault) -> String {
        guard let value = frame.headers[name] else {
            throw Fault("missing header", "\(frame.command) must have the header \(name).")
        }
        return value
    }

    // MARK: Connecting

    private mutating func connect(_ frame: STOMPFrame, on connection: Int) throws(Fault) {
        let version = try self.version(for: frame)
        if version != .v1_0 {
            let host = try self.required("host", frame)
            if let hosts = self.configuration.virtualHosts, !hosts.contains(host) {
                throw Fault("no such host", "There is no virtual host \(host).")
            }
        }
        if let logins = self.configuration.logins {
            guard let login = frame.headers["login"], let passcode = frame.headers["passcode"],
                logins[login] == passcode
            else { throw Fault("access refused", "The login or the passcode is wrong.") }
        }
        guard let theirs = STOMPHeartBeat(frame.headers["heart-beat"]) else {
            throw Fault("malformed heart-beat", "The header heart-beat has two numbers with a comma between them.")
        }
        let ours = self.configuration.heartBeat
        var headers: STOMPHeaders = [:]
        // A client that speaks only 1.0 sends no accept-version, and its server no version.
        if frame.headers.contains(name: "accept-version") { headers["version"] = version.rawValue }
        headers["heart-beat"] = "\(ours)"
        headers["server"] = "MockBroker"
        headers["session"] = "session-\(connection)"
        self.peers[connection]?.version = version
        self.actions.append(.send(STOMPFrame(.connected, headers), to: connection))
        self.actions.append(.agree(version, on: connection))
        let (sends, expects) = (ours.interval(to: theirs), theirs.interval(to: ours))
        if sends != nil || expects != nil {
            self.actions.append(.beat(on: connection, sends: sends, expects: expects))
        }
    }

    private func version(for frame: STOMPFrame) throws(Fault) -> STOMPVersion {
        let ours = self.configuration.versions.sorted()
        if let version = STOMPVersion.highest(of: ours, accepted: frame.headers["accept-version"]) { return version }
        let list = ours.map(\.rawValue).joined(separator: ",")
        throw Fault(
            "version not supported",
            "The supported versions are \(list).",
            headers: ["version": list]
        )
    }

    // MARK: Sending

    /// Returns whether a destination is valid; any name after the kind is.
    static func isDestination(_ destination: String) -> Bool {
        ["/queue/", "/topic/"].contains { destination.hasPrefix($0) && destination.utf8.count > $0.utf8.count }
    }

    private func destination(_ frame: STOMPFrame) throws(Fault) -> String {
        let destination = try self.required("destination", frame)
        guard Self.isDestination(destination) else {
            throw Fault("unknown destination", "\(destination) is neither /queue/… nor /topic/….")
        }
        return destination
    }

    /// Returns a message with the headers of a SEND that its receivers see.
    mutating func message(to destination: String, headers: STOMPHeaders, body: ByteBuffer) -> Message {
        let ours: Set = [
            "destination", "receipt", "transaction", "content-length", "message-id", "subscription", "ack",
            "redelivered",
        ]
        let passedOn = STOMPHeaders(headers.filter { !ours.contains($0.name) })
        return Message(number: self.nextNumber(), destination: destination, headers: passedOn, body: body)
    }

    private mutating func send(_ frame: STOMPFrame, on connection: Int) throws(Fault) {
        let destination = try self.destination(frame)
        let message = self.message(to: destination, headers: frame.headers, body: frame.body)
        if let transaction = try self.transaction(of: frame, on: connection) {
            self.peers[connection]?.transactions[transaction]?.append(.send(message))
        } else {
            self.route(message)
        }
    }

    // MARK: Subscribing

    private mutating func subscribe(
        _ frame: STOMPFrame,
        _ version: STOMPVersion,
        on connection: Int
    ) throws(Fault) {
        let destination = try self.destination(frame)
        let id = version == .v1_0 ? frame.headers["id"] : try self.required("id", frame)
        guard self.index(ofSubscription: id, destination, on: connection) == nil else {
            throw Fault("duplicate subscription", "There is a subscription \(id ?? destination) already.")
        }
        let ack = frame.headers["ack"] ?? "auto"
        guard let mode = AckMode(rawValue: ack), version != .v1_0 || mode != .clientIndividual else {
            throw Fault("unknown ack mode", "STOMP \(version) has no ack mode \(ack).")
        }
        var prefetch: Int?
        if let value = frame.headers["prefetch-count"] {
            guard let count = Int(value), count > 0 else {
                throw Fault("malformed prefetch-count", "\(value) is no number of messages.")
            }
            prefetch = count
        }
        let number = self.nextNumber()
        let subscription = Subscription(
            number: number,
            id: id,
            destination: destination,
            mode: mode,
            prefetch: mode == .auto ? nil : prefetch,
            mailbox: destination.hasPrefix("/queue/") ? .queue(destination) : .subscription(number)
        )
        self.peers[connection]?.subscriptions.append(subscription)
        let consumer = Consumer(connection: connection, subscription: number)
        self.mailboxes[subscription.mailbox, default: Mailbox()].consumers.append(consumer)
        self.dispatch(subscription.mailbox)
    }

    /// The index of a subscription by its id, or in 1.0, without one, by its destination.
    private func index(ofSubscription id: String?, _ destination: String?, on connection: Int) -> Int? {
        self.peers[connection]?.subscriptions.firstIndex { subscription in
            id == nil ? subscription.id == nil && subscription.destination == destination : subscription.id == id
        }
    }

    private mutating func unsubscribe(
        _ frame: STOMPFrame,
        _ version: STOMPVersion,
        on connection: Int
    ) throws(Fault) {
        let id = frame.headers["id"]
        let destination = frame.headers["destination"]
        if version != .v1_0 { _ = try self.required("id", frame) }
        if id == nil { _ = try self.required("destination", frame) }
        guard let index = self.index(ofSubscription: id, destination, on: connection),
            let subscription = self.peers[connection]?.subscriptions.remove(at: index)
        else {
            throw Fault("subscription not found", "There is no subscription \(id ?? destination ?? "").")
        }
        self.removeConsumer(Consumer(connection: connection, subscription: subscription.number), subscription)
        let unacknowledged = self.peers[connection]?.deliveries.removeAll(of: subscription.number)
        self.requeue(unacknowledged ?? [], of: [subscription])
    }
}
