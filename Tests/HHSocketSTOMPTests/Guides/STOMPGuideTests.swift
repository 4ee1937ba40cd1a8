// SPDX-License-Identifier: Apache-2.0
import HHSocketSTOMP
import HHSocketTesting
import TestSupport
import Testing

final class Inbox: STOMPClientDelegate {
    func stompClient(_ client: STOMPClient, didConnect agreement: STOMPAgreement) {
        print("connected")
    }

    func stompClient(_ client: STOMPClient, didReceive message: STOMPMessage) {
        print(message.text ?? "binary")
        message.ack(completion: nil)
    }

    func stompClient(_ client: STOMPClient, didCloseWith error: SocketError?) {
        print(error?.message ?? "closed by us")
    }
}

/// The examples of `STOMP.md`, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct STOMPGuideTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        #expect(try DocumentationPage(guide: "STOMP").shortcomings() == [])
    }

    @Test func transcriptIsTheExamplesOutput() throws {
        let expected = try DocumentationPage("Examples/STOMP/expected.txt").text
        let blocks = try DocumentationPage(guide: "STOMP", section: "Run it").blocks("")
        #expect(blocks.map { "\($0)\n" }.contains(expected))
    }

    @Test func codesOfTheTableExist() throws {
        let rows = try DocumentationPage(guide: "STOMP", section: "Errors").text.split(separator: "\n")
            .filter { $0.hasPrefix("| `") }
        let codes = rows.compactMap { $0.split(separator: "|").first }
            .flatMap { $0.matches(of: /`([A-Za-z]+)`/).map { String($0.output.1) } }
        #expect(codes.count > 9)
        let source = try DocumentationPage("Sources/HHSocketLink/SocketError.swift").text
        for code in codes { #expect(source.contains("public static let \(code) = "), "\(code)") }
    }

    private func passcode() async throws -> String { "secret" }

    @Test func theFlow() async throws {
        var rules = MockBroker.Configuration()
        rules.logins = ["ann": "secret"]
        rules.virtualHosts = ["/"]
        let broker = try await MockBroker(configuration: rules)
        var configuration = try STOMPClient.Configuration(url: "stomp://broker.example.com")
        configuration.host = "/"  // RabbitMQ's virtual host
        configuration.credentials = { STOMPCredentials(login: "ann", passcode: try await passcode()) }
        #expect(configuration.socket.servers == [Endpoint(host: "broker.example.com", port: 61_613)])
        configuration.socket.servers = [broker.endpoint]
        let client = STOMPClient(configuration: configuration)
        client.connect()
        let greetings = try client.subscribe(to: "/queue/greetings")
        try await client.send("hello", to: "/queue/greetings", receipt: true)
        for try await message in greetings {
            print(message.text ?? "\(message.body.readableBytes) bytes")
            break
        }
        try await client.disconnect()
        // The subscription may have been released before.
        let commands = broker.received.map(\.frame.command).filter { $0 != .unsubscribe }
        #expect(commands == [.connect, .subscribe, .send, .disconnect])
        try await broker.ended(connection: 0)
    }

    /// The statement of the page about credentials.
    @Test func credentialsThatThrowFailOneAttempt() async throws {
        let broker = try await MockBroker()
        var configuration = try STOMPClient.Configuration(url: broker.url)
        configuration.socket.backoff = .immediate
        let asked = Watched(0)
        configuration.credentials = {
            let count = asked.withLockedValue { count in
                count += 1
                return count
            }
            guard count > 1 else { throw Unexpected(description: "no token") }
            return STOMPCredentials(login: "ann", passcode: "token \(count)")
        }
        let client = STOMPClient(configuration: configuration)
        let events = client.events
        client.connect()
        try await client.send("hello", to: "/queue/a", receipt: true)
        let failure = try await first(of: events, "a failure") {
            if case .connection(.connectFailed(let error)) = $0 { error.code == .handshakeRefused } else { false }
        }
        #expect("\(failure)".contains("no token"))
        let connects = broker.received.filter { $0.frame.command == .connect }
        #expect(connects.map { $0.frame.headers["passcode"] } == ["token 2"])
    }

    @Test func refusedCredentialsEndTheAttempts() async throws {
        var rules = MockBroker.Configuration()
        rules.logins = ["ann": "secret"]
        let broker = try await MockBroker(configuration: rules)
        var configuration = try STOMPClient.Configuration(url: broker.url)
        configuration.credentials = { STOMPCredentials(login: "ann", passcode: "wrong word") }
        let client = STOMPClient(configuration: configuration)
        client.connect()
        let error = await #expect(throws: SocketError.self) {
            try await client.send("hello", to: "/queue/a")
        }
        #expect(error?.code == .handshakeRefused)
        #expect(error?.underlying is STOMPServerError)
        #expect(error.map { "\($0)" }?.contains("wrong word") == false)
        #expect(broker.acceptedCount == 1)
    }

    // MARK: Acknowledgements and transactions

    private func store(_ order: STOMPMessage) async throws {
        if order.text == "bad", order.headers["redelivered"] != "true" { throw Unexpected(description: "not now") }
    }

    @Test func ordersAreAcknowledgedOneByOne() async throws {
        let broker = try await MockBroker()
        for text in ["good", "bad"] { try await broker.publish(text, to: "/queue/orders") }
        let client = STOMPClient(configuration: try .init(url: broker.url))
        client.connect()
        let reading = Task {
            let orders = try client.subscribe(to: "/queue/orders", ack: .clientIndividual, window: 10)
            for try await order in orders {
                do {
                    try await store(order)
                    try await order.ack()
                } catch let error as SocketError where error.code == .connectionLost {
                    print("the broker delivers it again: \(order)")
                } catch {
                    try? await order.nack()
                }
            }
        }
        try await broker.received(2, .ack)
        try await broker.received(1, .nack)
        #expect(broker.subscriptions(onConnection: 0).map(\.prefetchCount) == [10])
        reading.cancel()
    }

    @Test func invoiceAndParcelAreSentTogether() async throws {
        let broker = try await MockBroker()
        try await broker.publish("order 7", to: "/queue/orders")
        let client = STOMPClient(configuration: try .init(url: broker.url))
        client.connect()
        for try await order in try client.subscribe(to: "/queue/orders", ack: .client) {
            try await client.transaction { transaction in
                try await transaction.send("invoice 7", to: "/queue/invoices")
                try await transaction.send("parcel 7", to: "/queue/parcels")
                try await transaction.ack(order)
            }
            break
        }
        #expect(broker.messages(in: "/queue/invoices").count == 1)
        #expect(broker.messages(in: "/queue/parcels").count == 1)
        #expect(broker.messages(in: "/queue/orders").isEmpty)
        try await client.disconnect()
    }

    // MARK: Errors and settings

    @Test(arguments: [false, true]) func deliverySaysWhetherItWasSent(loses: Bool) async throws {
        let broker = try await MockBroker()
        if loses { broker.once(.send, .reset) }
        var configuration = try STOMPClient.Configuration(url: broker.url)
        configuration.timeout = loses ? patience : .milliseconds(10)
        let client = STOMPClient(configuration: configuration)
        if loses { client.connect() }
        do {
            try await client.send("order 7", to: "/queue/orders", receipt: true)
        } catch let error where error.delivery == .notSent {
            print("it did not leave: \(error.message)")
        } catch {
            print("it may have arrived: \(error.message)")  // ask before you send it again
        }
        #expect(broker.received.count { $0.frame.command == .send } == (loses ? 1 : 0))
        // The connection is lost, as the page describes.
        if loses { broker.once(.send, .reset) }
        let error = await #expect(throws: SocketError.self) {
            try await client.send("order 7", to: "/queue/orders", receipt: true)
        }
        #expect(error?.code == (loses ? .connectionLost : .timeout))
        #expect(error?.delivery == (loses ? .sentUnknown : .notSent))
    }

    @Test func settings() throws {
        var configuration = try STOMPClient.Configuration(url: "wss://broker.example.com/ws")
        configuration.heartbeats = STOMPHeartbeats(send: .seconds(60), receive: .seconds(20))
        configuration.heartbeats = .off
        configuration.reconnects = { error in error.message != "access_refused" }
        #expect(configuration.heartbeats.send == .zero)
        #expect(STOMPHeartbeats().send == .seconds(10) && STOMPHeartbeats().receive == .seconds(10))
        #expect(configuration.maximumWaitingMessages == 10_000 && configuration.timeout == .seconds(30))
        #expect(configuration.connectTimeout == .seconds(10) && configuration.disconnectTimeout == .seconds(5))
        #expect(configuration.socket.maximumQueuedBytes == 64 << 20 && configuration.maximumBufferedBytes == 64 << 20)
        let limits = configuration.limits
        #expect(
            (limits.maximumHeaders, limits.maximumHeaderLength, limits.maximumBodyLength) == (1_024, 65_536, 16 << 20)
        )
        #expect(throws: SocketError.self) { try STOMPClient.Configuration(url: "stomp://ann:secret@example.com") }
    }

    @Test func bodiesAreAnyBytes() async throws {
        let broker = try await MockBroker()
        let client = STOMPClient(configuration: try .init(url: broker.url))
        client.connect()
        try await client.send(#"{"order": 7}"#, to: "/queue/orders", contentType: "application/json")
        try await client.send(ByteBuffer(bytes: [0, 0xFF]), to: "/queue/orders", headers: ["persistent": "true"])
        let frames = try await broker.received(2, .send).map(\.frame)
        #expect(frames.map { $0.headers["content-type"] } == ["application/json", nil])
        #expect(frames.map { $0.headers["content-length"] } == ["12", "2"])
        #expect(frames[1].body == ByteBuffer(bytes: [0, 0xFF]))
    }

    @Test func eventsReportTheERROR() async throws {
        let broker = try await MockBroker()
        let client = STOMPClient(configuration: try .init(url: broker.url))
        let (ends, openings) = (client.events, client.events)
        let reading = Task {
            for await event in client.events {
                switch event {
                case .opened(let agreement):
                    print("STOMP \(agreement.version) with \(agreement.server ?? "a broker")")
                case .closed(let error):
                    let said = error?.underlying as? STOMPServerError
                    print(said?.headers["message"] ?? error?.message ?? "closed by us")
                case .unclaimed(let message):
                    print("for no subscription: \(message)")
                case .connection(let event):
                    print(event)
                }
            }
        }
        client.connect()
        _ = try await first(of: openings, "a connection") { if case .opened = $0 { true } else { false } }
        await broker.perform(.frame(STOMPFrame(.error, ["message": "no more"])))
        let end = try await first(of: ends, "its end") { if case .closed = $0 { true } else { false } }
        var error: SocketError?
        if case .closed(let reason) = end { error = reason }
        #expect(error?.code == .brokerError && (error?.underlying as? STOMPServerError)?.message == "no more")
        reading.cancel()
    }

    // MARK: Delegate and handler

    @Test func delegateGetsMessages() async throws {
        let broker = try await MockBroker()
        try await broker.publish("order 7", to: "/queue/orders")
        let configuration = try STOMPClient.Configuration(url: broker.url)
        let inbox = Inbox()
        let client = STOMPClient(configuration: configuration)
        client.delegate = inbox  // held weakly
        client.connect()
        let subscription = try client.subscribe(to: "/queue/orders", ack: .client)
        client.send(ByteBuffer(string: "hello"), to: "/queue/orders") { result in
            print(result)
        }
        try await broker.received(2, .ack)
        try await subscription.unsubscribe()
        withExtendedLifetime(inbox) {}
    }

    private final class Prices: Sendable {
        let latest = Watched<[String]>([])

        func update(_ message: STOMPMessage) { self.latest.withLockedValue { $0.append(message.text ?? "") } }
    }

    @Test func handlerRunsOnTheSocketsThread() async throws {
        let broker = try await MockBroker()
        let client = STOMPClient(configuration: try .init(url: broker.url))
        client.connect()
        let prices = Prices()
        try client.subscribe(to: "/topic/prices") { message in
            prices.update(message)  // short, and never waiting
        }
        try await broker.received(1, .subscribe)
        try await broker.publish("7", to: "/topic/prices")
        try await eventually("a price") { prices.latest.withLockedValue { $0 } == ["7"] }
    }

    @Test func mockBroker() async throws {
        let broker = try await MockBroker()
        broker.once(.send, .handleWithoutReceipt)  // it arrives, and its sender does not know
        let client = STOMPClient(configuration: try .init(url: broker.url))
        client.connect()
        let orders = try client.subscribe(to: "/queue/orders")
        try await broker.publish("order 7", to: "/queue/orders")
        for try await order in orders {
            #expect(order.text == "order 7")
            break
        }
    }
}
