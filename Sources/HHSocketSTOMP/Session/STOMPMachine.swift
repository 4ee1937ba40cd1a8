// SPDX-License-Identifier: Apache-2.0
package import HHSocketLink

/// The decisions of a STOMP client about one connection after another: versions, heart-beats, subscriptions and their
/// restoration, acknowledgements, transactions, errors. No I/O and no clock; it takes frames and the user's requests,
/// and returns frames and news.
///
/// `+Settling` has acknowledgements, `+Transactions` transactions.
package struct STOMPMachine: Sendable {
    /// The settings of a client, as far as brokers learn them.
    package struct Settings: Sendable {
        /// The versions to choose from; not empty.
        package var versions = STOMPVersion.allCases
        package var heartbeats = STOMPHeartbeats()
        /// The header `host`; nil for the endpoint's.
        package var host: String?
        /// Further headers of CONNECT.
        package var headers = STOMPHeaders()

        package init() {}
    }

    /// The news that a frame brings.
    package enum News: Sendable {
        /// The broker has accepted the connection.
        case connected(STOMPAgreement)
        /// A message of a subscription.
        case message(STOMPDelivery)
        /// A message that belongs to no existing subscription.
        case unclaimed
        /// The broker has processed the frame that asked for this receipt.
        case receipt(String)
    }

    /// The end of a connection by a frame of the broker's.
    package enum Failure: Error {
        case error(STOMPServerError, isAnswerToConnect: Bool)
        /// A frame that breaks the rules.
        case violation(String)
    }

    enum Phase: Sendable {
        case idle
        /// CONNECT has been sent.
        case connecting(Endpoint)
        case connected(STOMPAgreement)
    }

    /// A subscription that is made on every connection.
    struct Subscription: Sendable {
        var id: String
        var destination: String
        var ackMode: STOMPAckMode
        var headers: STOMPHeaders
        /// The greatest number of unsettled messages; with one more, reading is suspended.
        var window: Int
        /// The order in which subscriptions were made.
        var order: UInt64
        var acks = AckWindow()
    }

    let settings: Settings
    var phase = Phase.idle
    /// The number of the connection.
    package private(set) var connection: UInt64 = 0
    var subscriptions: [String: Subscription] = [:]
    /// The subscriptions with so many unsettled messages that reading should be suspended.
    var overdrawn: Set<String> = []
    var transactions: [String: Transaction] = [:]
    private var lastSubscription: UInt64 = 0
    private var lastReceipt: UInt64 = 0
    var lastTransaction: UInt64 = 0

    package init(_ settings: Settings = Settings()) {
        self.settings = settings
    }

    package var agreement: STOMPAgreement? {
        if case .connected(let agreement) = self.phase { agreement } else { nil }
    }

    /// Whether so many messages are unsettled that reading should be suspended.
    package var isOverdrawn: Bool { !self.overdrawn.isEmpty }

    /// Returns a new receipt, which no frame has asked for before.
    package mutating func makeReceipt() -> String {
        self.lastReceipt += 1
        return "r\(self.lastReceipt)"
    }

    // MARK: Connections

    /// Begins a connection.
    ///
    /// - Returns: The first frame to send.
    package mutating func begin(_ endpoint: Endpoint, _ credentials: STOMPCredentials?) -> STOMPFrame {
        self.connection += 1
        self.phase = .connecting(endpoint)
        self.forgetDeliveries()
        var headers = STOMPHeaders()
        let versions = self.settings.versions.sorted().map(\.rawValue)
        // A client of 1.0 does not know this header.
        if versions != [STOMPVersion.v1_0.rawValue] {
            headers.add(name: "accept-version", value: versions.joined(separator: ","))
            headers.add(name: "heart-beat", value: self.settings.heartbeats.offer.description)
        }
        headers.add(name: "host", value: self.settings.host ?? endpoint.host)
        if let credentials {
            headers.add(name: "login", value: credentials.login)
            headers.add(name: "passcode", value: credentials.passcode)
        }
        for (name, value) in self.settings.headers { headers.add(name: name, value: value) }
        return STOMPFrame(.connect, headers)
    }

    /// Ends a connection. Its deliveries can no longer be settled.
    package mutating func end() {
        self.phase = .idle
        self.forgetDeliveries()
    }

    private mutating func forgetDeliveries() {
        self.transactions = [:]
        self.overdrawn = []
        for id in self.subscriptions.keys { self.subscriptions[id]?.acks = AckWindow() }
    }

    // MARK: Frames

    package mutating func received(_ frame: STOMPFrame) throws(Failure) -> News {
        switch (self.phase, frame.command) {
        case (.connecting(let endpoint), .connected):
            return .connected(try self.connected(frame, endpoint))
        case (.connecting, .error):
            throw .error(STOMPServerError(frame), isAnswerToConnect: true)
        case (.connected, .error):
            throw .error(STOMPServerError(frame), isAnswerToConnect: false)
        case (.connected(let agreement), .message):
            return try self.message(frame, agreement.version)
        case (.connected, .receipt):
            guard let receipt = frame.headers["receipt-id"] else {
                throw .violation("RECEIPT without the header receipt-id")
            }
            return .receipt(receipt)
        case (.connecting, let command):
            throw .violation("\(command) in answer to CONNECT, where CONNECTED or ERROR is expected")
        case (_, let command):
            throw .violation("\(command), which no broker sends")
        }
    }

    private mutating func connected(_ frame: STOMPFrame, _ endpoint: Endpoint) throws(Failure) -> STOMPAgreement {
        let headers = frame.headers
        let name = headers["version"] ?? STOMPVersion.v1_0.rawValue
        guard let version = STOMPVersion(rawValue: name), self.settings.versions.contains(version) else {
            let offered = self.settings.versions.sorted().map(\.rawValue).joined(separator: ", ")
            throw .violation("the broker speaks version \(name), which was not offered (\(offered))")
        }
        var heartbeats = STOMPHeartbeats.off
        if version > .v1_0, let header = headers["heart-beat"] {
            guard let theirs = STOMPHeartBeat(header) else {
                throw .violation("the header heart-beat of CONNECTED is \"\(header)\", not two numbers")
            }
            heartbeats = self.settings.heartbeats.agreed(with: theirs)
        }
        let agreement = STOMPAgreement(
            endpoint: endpoint,
            version: version,
            server: headers["server"],
            session: headers["session"],
            heartbeats: heartbeats,
            headers: headers
        )
        self.phase = .connected(agreement)
        return agreement
    }

    private mutating func message(_ frame: STOMPFrame, _ version: STOMPVersion) throws(Failure) -> News {
        let headers = frame.headers
        guard let id = headers["subscription"] ?? (version == .v1_0 ? self.subscription(of: headers) : nil),
            let index = self.subscriptions.index(forKey: id)
        else { return .unclaimed }
        // Changed in place: its window may be long.
        let ackMode = self.subscriptions.values[index].ackMode
        var delivery = STOMPDelivery(connection: self.connection, subscription: id, ackMode: ackMode, number: 0)
        guard ackMode != .auto else { return .message(delivery) }
        delivery.identifier = version == .v1_2 ? headers["ack"] : headers["message-id"]
        delivery.number = self.subscriptions.values[index].acks.deliver()
        // Reading continues from a broker that keeps to the window, because its heart-beats and receipts arrive too.
        let window = self.subscriptions.values[index].window
        if self.subscriptions.values[index].acks.openCount > window { self.overdrawn.insert(id) }
        return .message(delivery)
    }

    /// The subscription of a message of 1.0, which need not name it.
    private func subscription(of headers: STOMPHeaders) -> String? {
        guard let destination = headers["destination"] else { return nil }
        let candidates = self.subscriptions.values.filter { $0.destination == destination }
        return candidates.min { $0.order < $1.order }?.id
    }

    // MARK: Subscriptions

    /// Adds a subscription.
    ///
    /// - Parameter window: The greatest number of unsettled messages; with one more, reading is suspended.
    /// - Returns: False if the id is in use.
    package mutating func subscribe(
        _ id: String,
        to destination: String,
        ackMode: STOMPAckMode,
        headers: STOMPHeaders,
        window: Int
    ) -> Bool {
        guard self.subscriptions[id] == nil else { return false }
        self.lastSubscription += 1
        self.subscriptions[id] = Subscription(
            id: id,
            destination: destination,
            ackMode: ackMode,
            headers: headers,
            window: window,
            order: self.lastSubscription
        )
        return true
    }

    /// Returns the frame that makes the subscription on this connection, which asks for a receipt; nil if there is no
    /// such subscription, or no connection.
    package func subscribing(_ id: String, receipt: String) -> STOMPFrame? {
        guard let subscription = self.subscriptions[id], self.agreement != nil else { return nil }
        var headers: STOMPHeaders = ["id": id, "destination": subscription.destination]
        headers.add(name: "ack", value: subscription.ackMode.rawValue)
        headers.add(name: "receipt", value: receipt)
        for (name, value) in subscription.headers { headers.add(name: name, value: value) }
        return STOMPFrame(.subscribe, headers)
    }

    /// The ids of all subscriptions, in the order in which they were made.
    package var subscriptionIDs: [String] {
        self.subscriptions.values.sorted { $0.order < $1.order }.map(\.id)
    }

    /// Removes a subscription.
    ///
    /// - Returns: The frame that ends it on this connection; nil if there is none.
    package mutating func unsubscribe(_ id: String, headers: STOMPHeaders) -> STOMPFrame? {
        guard self.subscriptions.removeValue(forKey: id) != nil else { return nil }
        self.overdrawn.remove(id)
        guard self.agreement != nil else { return nil }
        var all: STOMPHeaders = ["id": id]
        for (name, value) in headers { all.add(name: name, value: value) }
        return STOMPFrame(.unsubscribe, all)
    }
}
