// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import HHSocketRPC
import HHSocketTesting
import HHSocketTransferValues
import NIOConcurrencyHelpers
import NIOCore
import TestSupport

@testable import HHSocketTransfers

/// A store for one file that runs on a ``MockServer``, with the faults that a test requests.
final class ScriptedStore: Sendable {
    struct State {
        /// The content of the file; nil if there is none.
        var whole: [UInt8]?
        /// The received content.
        var unfinished: [UInt8] = []
        var announced: TransferFile?
        /// The numbers of the connection and the stream that are served.
        var served: [Int] = []
        var reported = 0
        var begins: [Hhsocket_PutBegin] = []
        var requests: [Hhsocket_GetRequest] = []
        /// The number of received bytes of content, useful or not.
        var received = 0

        // Faults.
        /// The numbers of further bytes of content after which the connection ends; each is used once.
        var cuts: [Int] = []
        /// The failures that answer the next beginnings.
        var failures: [TransferError] = []
        /// The statuses with which the next streams end immediately.
        var statuses: [Status] = []
        /// The number of last reports instead of which the connection ends.
        var losesAnswers = 0
        /// The number of next contents that are damaged.
        var damages = 0
        /// The length of the items of get.
        var itemLength = 65_536
        /// Whether the store never answers.
        var isSilent = false
        /// The number of the connection on which it never answers.
        var silentConnection: Int?
        /// The reactions to the next gets, instead of the content.
        var answers: [MockServer.Reaction] = []
        /// The number of gets that are answered; for others the server is overloaded.
        var maximumAnswers = Int.max
        /// The content after the next cut of a get.
        var replacement: [UInt8]?
    }

    let server: MockServer
    let state: NIOLockedValueBox<State>

    init(types: TransferTypes = TransferTypes()) async throws {
        let server = try await MockServer()
        let state = NIOLockedValueBox(State())
        server.acceptHello(streams: StreamPolicy(streamWindow: 4 << 20, connectionWindow: 8 << 20))
        server.on(101, .echo)
        server.on(
            types.put,
            .respond { request in
                state.withLockedValue { $0.statuses.isEmpty ? .drop : .status($0.statuses.removeFirst()) }
            }
        )
        server.onItem(of: types.put, .respond { received in state.withLockedValue { $0.take(received) } })
        server.onItemsEnded(of: types.put, .respond { received in state.withLockedValue { $0.finish(received) } })
        server.on(types.get, .respond { request in state.withLockedValue { $0.answer(request) } })
        server.on(types.find, .respond { request in state.withLockedValue { $0.describe(request) } })
        server.on(types.discard, .answer(ByteBuffer()))
        self.server = server
        self.state = state
    }

    /// A client of the store, with windows that its reactions do not exceed.
    func client(configure: (inout SocketClient.Configuration) -> Void = { _ in }) -> SocketClient {
        var configuration = SocketClient.Configuration(servers: [self.server.endpoint])
        configuration.timeout = patience
        configuration.socket.backoff.base = .milliseconds(20)
        configuration.streams = StreamPolicy(streamWindow: 16 << 20, connectionWindow: 16 << 20)
        configure(&configuration)
        return SocketClient(configuration: configuration)
    }

    func with<Value>(_ body: (inout State) -> Value) -> Value { self.state.withLockedValue(body) }
}

extension ScriptedStore.State {
    typealias Reaction = MockServer.Reaction

    static func describe(_ content: [UInt8]) -> TransferFile {
        content.withUnsafeBytes { TransferFile(of: $0) }
    }

    // MARK: Put

    private func report(complete: Bool = false, failure: TransferError? = nil, changed: Bool = false) -> Reaction {
        var message = Hhsocket_PutReport()
        message.offset = UInt64(complete ? self.whole?.count ?? 0 : self.unfinished.count)
        message.complete = complete
        message.changed = changed
        if let failure { message.failure = failure.failure }
        return .item(message.buffer)
    }

    mutating func take(_ received: MockServer.Received) -> Reaction {
        guard !self.isSilent, received.connection != self.silentConnection else { return .drop }
        if let part = TransferPart(item: received.body) { return self.take(part, received) }
        guard let message = try? Hhsocket_PutRequest(serializedBytes: received.body.readableBytesView) else {
            return .status(.illegalFormat)
        }
        return self.begin(message.begin, received)
    }

    private mutating func begin(_ begin: Hhsocket_PutBegin, _ received: MockServer.Received) -> Reaction {
        self.begins.append(begin)
        self.served = [received.connection, Int(received.serial)]
        if !self.failures.isEmpty {
            return self.report(failure: self.failures.removeFirst()).then(.status(.database))
        }
        guard let file = TransferFile(begin.file) else { return .status(.illegalFormat) }
        if let whole = self.whole, Self.describe(whole) == file {
            return self.report(complete: true).then(.status(.ok))
        }
        let changed = self.announced != nil && self.announced != file && !self.unfinished.isEmpty
        if changed { self.unfinished = [] }
        self.announced = file
        self.reported = self.unfinished.count
        return self.report(changed: changed)
    }

    private mutating func take(_ part: TransferPart, _ received: MockServer.Received) -> Reaction {
        guard self.served == [received.connection, Int(received.serial)] else { return .drop }
        self.received += part.bytes.readableBytes
        if let cut = self.cuts.first {
            guard part.bytes.readableBytes < cut else {
                self.cuts.removeFirst()
                self.unfinished += part.bytes.readableBytesView.prefix(cut)
                self.served = []
                return .close
            }
            self.cuts[0] = cut - part.bytes.readableBytes
        }
        guard part.offset == UInt64(self.unfinished.count) else { return self.report() }
        self.unfinished += part.bytes.readableBytesView
        guard self.unfinished.count - self.reported >= 131_072 else { return .drop }
        self.reported = self.unfinished.count
        return self.report()
    }

    mutating func finish(_ received: MockServer.Received) -> Reaction {
        guard self.served == [received.connection, Int(received.serial)], !self.isSilent else { return .drop }
        let content = self.unfinished
        self.unfinished = []
        if self.damages > 0 {
            self.damages -= 1
            return self.report(failure: TransferError(.wrongHash, "wrong")).then(.status(.database))
        }
        guard Self.describe(content) == self.announced else {
            return self.report(failure: TransferError(.wrongHash, "really wrong")).then(.status(.database))
        }
        self.whole = content
        if self.losesAnswers > 0 {
            self.losesAnswers -= 1
            return .close
        }
        return self.report(complete: true).then(.status(.ok))
    }

    // MARK: Get and find

    mutating func answer(_ received: MockServer.Received) -> Reaction {
        guard !self.isSilent else { return .drop }
        guard let request = try? Hhsocket_GetRequest(serializedBytes: received.body.readableBytesView) else {
            return .status(.illegalFormat)
        }
        self.requests.append(request)
        if !self.statuses.isEmpty { return .status(self.statuses.removeFirst()) }
        if !self.answers.isEmpty { return self.answers.removeFirst() }
        guard self.requests.count <= self.maximumAnswers else { return .status(.overloaded) }
        guard let whole = self.whole else {
            var message = Hhsocket_GetItem()
            message.failure = TransferError(.notFound, "there is no such file").failure
            return Reaction.item(message.buffer).then(.status(.unknown))
        }
        let file = Self.describe(whole)
        let offset = request.hasBegun && TransferFile(request.begun) == file ? Int(request.offset) : 0
        var end = whole.count
        let cut = self.cuts.first
        if let cut {
            self.cuts.removeFirst()
            if let replacement = self.replacement.take() { self.whole = replacement }
            end = min(end, offset + cut)
        }
        var items = [Self.begin(file, offset)]
        for start in stride(from: offset, to: end, by: self.itemLength) {
            var bytes = Array(whole[start..<min(end, start + self.itemLength)])
            if self.damages > 0 {
                self.damages -= 1
                bytes[0] ^= 1
            }
            items.append(.item(TransferPart(offset: UInt64(start), bytes: ByteBuffer(bytes: bytes)).item))
        }
        return .glued(items).then(cut == nil ? .status(.ok) : .close)
    }

    static func begin(_ file: TransferFile, _ offset: Int) -> Reaction {
        var message = Hhsocket_GetItem()
        message.begin.file = file.message
        message.begin.offset = UInt64(offset)
        return .item(message.buffer)
    }

    func describe(_ received: MockServer.Received) -> Reaction {
        var message = Hhsocket_FindReply()
        if let whole = self.whole {
            message.file = Self.describe(whole).message
            message.modified = 1_700_000_000_000_000_000
        } else {
            message.failure = TransferError(.notFound, "there is no such file").failure
        }
        return .answer(message.buffer)
    }
}

extension ProtobufMessage {
    /// The message as an item.
    fileprivate var buffer: ByteBuffer { ByteBuffer(bytes: (try? self.serializedBytes()) ?? []) }
}
