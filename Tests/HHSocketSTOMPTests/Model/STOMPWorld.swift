// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import NIOEmbedded
import TestSupport

@testable import HHSocket
@testable import HHSocketSTOMP

/// A client in virtual time, the network and a broker around it, and their promises.
///
/// Everything of the client is real, and the broker has the rules of ``BrokerMachine``: an ERROR that the broker sends
/// by itself shows that the client has broken them. The channels, the clock and the random numbers are the history's.
final class STOMPWorld: @unchecked Sendable {
    // Proof of Sendable: a history runs on one thread, Swift's tasks included, which run on the client's executor.

    /// A message that the user has sent.
    struct Sent {
        let began: NIODeadline
        let receipt: Bool
        let style: STOMPStep.Style
        var outcome: Result<Void, SocketError>?
        /// The number of times that the broker has received it.
        var receivedCount = 0
        var isInTransaction = false
    }

    /// A subscription of the user.
    struct Subscribed {
        var subscription: STOMPSubscription?
        let destination: String
        let mode: STOMPAckMode
        let window: Int?
        var isLive = true
        /// The ids of the messages that have arrived.
        var seen: Set<String> = []
    }

    /// A message that was received and not settled.
    struct Held {
        let message: STOMPMessage
        let subscription: Int
        let connection: UInt64
    }

    /// A wrong expectation.
    enum Flaw: CaseIterable {
        case soonerOutcomes, noSubscriptionsAfterTheFirst, smallerWindows, noReceiptsOfSends
    }

    static let destinations = ["/queue/a", "/queue/b", "/queue/c", "/topic/a", "/topic/b"]
    static let timeout = Duration.seconds(20)
    static let interval = Duration.seconds(3)
    static let maximumWaiting = 50

    let flaw: Flaw?
    let version: STOMPVersion
    let loop = EmbeddedEventLoop()
    var generator: SeededGenerator
    var client: STOMPClient?
    weak var trace: STOMPClient?
    let executor: SocketExecutor
    var broken: String?

    // The network and the broker.
    var broker: BrokerMachine
    var mood = STOMPStep.Mood.accepts
    var connections: [SimulatedBrokerConnection] = []
    /// The connections of whose end the broker was notified.
    var ended: Set<Int> = []
    var dials: [Int: EventLoopPromise<any Channel>] = [:]
    /// The receipts that the broker owes, on each connection.
    var owed: [Int: [String]] = [:]

    // The client.
    var isWanted = false
    var isInBackground = false
    /// Whether the client leaves the connection by itself, and sends no more heart-beats.
    var isDisconnecting = false
    var agreement: STOMPAgreement?
    var sent: [Sent] = []
    var senders: [Int: Task<Void, Never>] = [:]
    var subscribed: [Subscribed] = []
    var held: [Held] = []
    /// The ids of messages that the broker has confirmed to be settled.
    var settledForGood: Set<String> = []
    var isHolding = false
    var hasHeldUp = false
    var gates: [CheckedContinuation<Void, Never>] = []
    var openTransactions = 0
    var runningTasks = 0

    init(seed: UInt64, flaw: Flaw? = nil) throws {
        self.flaw = flaw
        self.generator = SeededGenerator(seed: seed ^ 0x570)
        self.version = STOMPVersion.allCases[Int(seed % 3)]
        let loop = self.loop
        loop.advanceTime(to: .uptimeNanoseconds(1_000_000_000_000))
        self.broker = BrokerMachine()
        let hosts = ["one.example", "two.example"].prefix(seed % 4 == 0 ? 2 : 1)
        var socket = SocketConfiguration(servers: hosts.map { Endpoint(host: $0, port: 61_613) })
        socket.networkMonitor = nil
        socket.eventLoopGroup = loop
        socket.callbackQueue = .socketThread
        var configuration = STOMPClient.Configuration(socket: socket)
        configuration.versions = [self.version]
        configuration.heartbeats = STOMPHeartbeats(send: Self.interval, receive: Self.interval)
        configuration.timeout = Self.timeout
        configuration.maximumWaitingMessages = Self.maximumWaiting
        let box = Unowned()
        let world = DriverWorld.simulated(on: loop) {
            box.world?.generator.next() ?? 0
        } open: { _, initializer in
            box.world?.dial(initializer) ?? loop.makeFailedFuture(ChannelError.connectPending)
        }
        let client = STOMPClient(configuration, in: world)
        self.client = client
        self.trace = client
        self.executor = client.executor
        box.world = self
        let events = client.events
        self.task { world in
            for await event in events { world.happened(event) }
        }
    }

    /// The client driver's reference to this world, which holds the client.
    final class Unowned: @unchecked Sendable {
        // Proof of Sendable: only accessed on the history's thread.
        weak var world: STOMPWorld?
    }

    /// Runs a task on the client's thread, which ends with the client at the latest.
    @discardableResult
    func task(_ body: @escaping @Sendable (STOMPWorld) async -> Void) -> Task<Void, Never>? {
        guard #available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *) else { return nil }
        self.runningTasks += 1
        return Task(executorPreference: self.executor) {
            await body(self)
            self.runningTasks -= 1
        }
    }

    func fail(_ promise: String) {
        if self.broken == nil { self.broken = promise }
    }

    var now: NIODeadline { self.loop.now }

    // MARK: The network

    func dial(_ initializer: SimulatedBootstrap.Initializer) -> EventLoopFuture<any Channel> {
        if !self.isWanted { self.fail("a connection is attempted that nobody wants") }
        if let other = self.connections.first(where: { $0.channel.isOpen }) {
            self.fail("a connection is attempted while connection \(other.number) is there")
        }
        let number = self.connections.count
        let generator = SeededGenerator(seed: self.generator.next())
        let connection = SimulatedBrokerConnection(number, self.loop, now: self.now, generator)
        self.connections.append(connection)
        let promise = self.loop.makePromise(of: (any Channel).self)
        self.dials[number] = promise
        initializer(connection.channel).assumeIsolated().whenFailure { _ in connection.channel.close(promise: nil) }
        connection.channel.register0(promise: nil)
        let mood = self.mood
        self.loop.execute {
            switch mood {
            case .isAway: break
            case .refusesConnections:
                self.dials.removeValue(forKey: number)?.fail(IOError(errnoCode: 111, reason: "connect"))
                connection.channel.close(promise: nil)
            case .accepts, .isSilent, .hangsUp:
                guard let promise = self.dials.removeValue(forKey: number) else { return }
                connection.channel.activate { promise.succeed(connection.channel) }
                self.broker.opened(number)
                if mood == .isSilent { connection.isReading = false }
                if mood == .hangsUp { connection.finish(.fin) }
            }
        }
        return promise.futureResult
    }

    /// Runs all work that takes no time.
    func settle() {
        do {
            for _ in 0..<100_000 {
                self.loop.run()
                var hasMoved = false
                for connection in self.connections where !self.ended.contains(connection.number) {
                    hasMoved = try connection.settle { self.received($0, on: connection) } || hasMoved
                    guard connection.isOver else { continue }
                    self.dials.removeValue(forKey: connection.number)?.fail(ChannelError.alreadyClosed)
                    try connection.readRest { self.received($0, on: connection) }
                    self.ended.insert(connection.number)
                    self.perform(self.broker.ended(connection.number))
                    hasMoved = true
                }
                if !hasMoved { return }
            }
            self.fail("the client and the broker never come to rest")
        } catch {
            self.fail("the client's bytes are no STOMP: \(error)")
        }
    }

    func advance(_ time: TimeAmount) {
        var rest = time
        while rest > .zero, self.broken == nil {
            let part = min(rest, .milliseconds(250))
            rest = rest - part
            self.loop.advanceTime(by: part)
            for connection in self.connections where !connection.isOver && connection.beatInterval != nil {
                let due = connection.lastSent + .milliseconds(Int64(connection.beatInterval ?? 0)) - .milliseconds(250)
                if self.now >= due { connection.sendBeat() }
            }
            self.settle()
            self.checkTimes()
        }
    }

    // MARK: The broker

    private func received(_ frame: STOMPFrame, on connection: SimulatedBrokerConnection) {
        if frame.command == .send, let number = Self.number(of: frame.body), self.sent.indices.contains(number) {
            self.sent[number].receivedCount += 1
            if self.sent[number].receivedCount > 1 { self.fail("message \(number) was sent twice") }
            if case .failure(let error)? = self.sent[number].outcome, error.delivery == .notSent {
                self.fail("message \(number) arrives, though it was not sent: \(error)")
            }
        }
        if let receipt = frame.headers["receipt"] { self.owed[connection.number, default: []].append(receipt) }
        self.perform(self.broker.receivedFrame(frame, on: connection.number))
    }

    func perform(_ actions: [BrokerMachine.Action]) {
        for action in actions {
            switch action {
            case .send(let frame, let number):
                if frame.command == .error {
                    self.fail("the client has broken a rule: \(frame) \(String(buffer: frame.body))")
                }
                if let receipt = frame.headers["receipt-id"] { self.owed[number]?.removeAll { $0 == receipt } }
                do { try self.connections[number].send(frame) } catch { self.fail("\(error)") }
            case .agree(let version, let number): self.connections[number].agree(on: version)
            case .beat(let number, let sends, let expects):
                self.connections[number].beatInterval = sends
                self.connections[number].expectedInterval = expects
            case .close(let number): self.connections[number].finish(.fin)
            }
        }
    }

    var liveConnection: SimulatedBrokerConnection? { self.connections.last { !$0.isOver } }

    static func body(_ number: Int, _ length: Int) -> ByteBuffer {
        var body = ByteBuffer(string: "m\(number).")
        body.writeRepeatingByte(0, count: length)
        return body
    }

    static func number(of body: ByteBuffer) -> Int? {
        let view = body.readableBytesView
        guard view.first == UInt8(ascii: "m"), let end = view.firstIndex(of: UInt8(ascii: ".")) else { return nil }
        return Int(String(decoding: view[..<end].dropFirst(), as: UTF8.self))
    }

    // MARK: Events

    private func happened(_ event: STOMPEvent) {
        switch event {
        case .opened(let agreement):
            if self.agreement != nil { self.fail("opened, and not closed before") }
            if agreement.version != self.version { self.fail("opened with version \(agreement.version)") }
            self.agreement = agreement
        case .closed:
            if self.agreement == nil { self.fail("closed, and not opened before") }
            self.agreement = nil
            self.isDisconnecting = false
        case .unclaimed(let message):
            // The message was in transit when its subscription ended.
            if !self.subscribed.contains(where: { !$0.isLive }) { self.fail("\(message) belongs to nobody") }
        case .connection(.gaveUp(let error)):
            self.fail("attempts have stopped: \(error)")
        case .connection:
            break
        }
    }
}
