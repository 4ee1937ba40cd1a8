// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import HHSocketTesting
import InMemoryLogging
import Logging
import MetricsTestKit
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

private let echo: UInt32 = 100
private let signIn: UInt32 = 101
private let signOut: UInt32 = 102
private let count: UInt32 = 103

/// Records the questions to an admission, and the notifications of observers.
private final class Notes: ServerAdmission, RefusalObserver {
    struct Refusal: Equatable {
        var type: UInt32
        var serial: UInt32
        var status: Status
    }

    let headers = NIOLockedValueBox<[RequestHeader]>([])
    let refusals = NIOLockedValueBox<[Refusal]>([])
    let decision = NIOLockedValueBox(Admission.admit)

    func admit(_ header: RequestHeader, _ session: ServerSession) -> Admission {
        self.headers.withLockedValue { $0.append(header) }
        return self.decision.withLockedValue { $0 }
    }

    func refused(_ header: RequestHeader, with status: Status, in session: ServerSession) {
        self.refusals.withLockedValue {
            $0.append(Refusal(type: header.type, serial: header.serial, status: status))
        }
    }
}

/// Admission decides on requests by their headers, before any other work on them.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct AdmissionTests {
    private let runs = NIOLockedValueBox(0)

    private func makeRouter(_ layers: any RouterLayer...) -> Router {
        let runs = self.runs
        var router = Router()
        for layer in layers { router.use(layer) }
        router.handleSynchronously(echo) { request, _ in request.body }
        router.handleSynchronously(signIn) { request, context in
            context.session.authenticate(as: String(buffer: request.body))
            return ByteBuffer()
        }
        router.handleSynchronously(signOut) { _, context in
            context.session.authenticate(as: nil)
            return ByteBuffer()
        }
        router.handle(count) { _, _ in
            runs.withLockedValue { $0 += 1 }
            return ByteBuffer(string: "once")
        }
        return router
    }

    private func withGreeter(
        _ router: Router,
        configuration: SocketServer.Configuration = .init(),
        _ body: (Greeter, SocketServer) async throws -> Void
    ) async throws {
        try await withServer(configuration, router) { server in
            let greeter = try await Greeter(server)
            _ = try await greeter.greet()
            try await body(greeter, server)
        }
    }

    @Test func anAdmissionSeesTheHeaderAndNotTheBody() async throws {
        let notes = Notes()
        try await self.withGreeter(self.makeRouter(notes)) { greeter, _ in
            let body = ByteBuffer(repeating: 0, count: 100_000)
            try await greeter.call(
                echo,
                serial: 60,
                body,
                WireMetadata(["tenant": "acme"], deadline: 60_000, key: "k"),
                compression: CompressionPolicy()
            )
            #expect(try await greeter.answer().frame.payload == body)
        }
        let headers = notes.headers.withLockedValue { $0 }
        let header = try #require(headers.first)
        #expect(headers.count == 1)
        #expect((header.type, header.serial, header.isCompressed) == (echo, 60, true))
        #expect((1..<1_000).contains(header.length))
        #expect(header.metadata == ["tenant": "acme"] && header.idempotencyKey == "k")
        #expect(header.deadline != nil && header.hasHandler && header.fields.isEmpty)
    }

    @Test func anAdmissionChoosesTheStatusAndHandlersDoNotRun() async throws {
        let notes = Notes()
        try await self.withGreeter(self.makeRouter(notes)) { greeter, server in
            for (decision, status) in [
                (.refuse(.noPermission), .noPermission), (.refuse(.overloaded), .overloaded),
                (.refuse(.ok), .unknown), (.admit, .ok),
            ] as [(Admission, Status)] {
                notes.decision.withLockedValue { $0 = decision }
                for type in [echo, count] {
                    try await greeter.call(type)
                    #expect(try await greeter.answer().frame.status == status)
                }
            }
            #expect(server.statistics[.refusedByAdmission] == 6)
            #expect(self.runs.withLockedValue { $0 } == 1)
        }
    }

    @Test func anAdmissionOfAGroupIsAskedForItsTypesAlone() async throws {
        let notes = Notes()
        notes.decision.withLockedValue { $0 = .refuse(.noPermission) }
        var router = self.makeRouter()
        router.group(notes) { group in group.handleSynchronously(110) { request, _ in request.body } }
        router.admit { header, _ in header.type == 111 ? .refuse(.draining) : .admit }
        try await self.withGreeter(router) { greeter, _ in
            var statuses: [Status] = []
            for type in [echo, 110, 111, 112] {
                try await greeter.call(type)
                statuses.append(try await greeter.answer().frame.status)
            }
            #expect(statuses == [.ok, .noPermission, .draining, .undefinedType])
        }
        #expect(notes.headers.withLockedValue { $0.map(\.type) } == [110])
    }

    // MARK: Authentication

    /// A rejected request must not cost the work of inflating.
    @Test func bodyOfARefusedRequestIsNotDecompressed() async throws {
        // Not by `AuthenticationMiddleware`, with which hello does not agree on compression with strangers.
        var router = self.makeRouter()
        router.admit { header, session in
            session.identity != nil || header.type == signIn ? .admit : .refuse(.noPermission)
        }
        try await self.withGreeter(router) { greeter, server in
            // Not a zlib stream: inflating it would fail with 303.
            let payload = ByteBuffer(string: "this is not compressed")
            let frame = Frame(type: echo | FrameType.compressionFlag, serial: 50, payload: payload)
            await greeter.client.perform(.frame(frame))
            #expect(try await greeter.answer().frame.status == .noPermission)
            try await greeter.call(signIn, serial: 51, ByteBuffer(string: "ann"))
            #expect(try await greeter.answer().frame.status == .ok)
            await greeter.client.perform(.frame(frame))
            #expect(try await greeter.answer().frame.status == .illegalFormat)
            #expect(server.statistics[.refusedByAdmission] == 1)
        }
    }

    /// Authentication alone requires no task for a handler.
    @Test func synchronousHandlersStayOnTheEventLoopDespiteAuthentication() throws {
        let threads = BlockingThreads(count: 1)
        let router = self.makeRouter(AuthenticationMiddleware())
        let route = try #require(router.routes(blockingOn: threads)[echo])
        guard case .synchronous = route.handling else { throw Unexpected(description: "a task") }
        #expect(route.openHandlers == nil, "its admission would not be asked on the fast path")
        #expect(self.makeRouter().routes(blockingOn: threads)[echo]?.openHandlers != nil)
    }

    @Test func aKeptAnswerIsForThoseWhoAreStillAdmitted() async throws {
        let notes = Notes()
        try await self.withGreeter(self.makeRouter(notes)) { greeter, server in
            func call() async throws -> String {
                try await greeter.call(count, ByteBuffer(), WireMetadata(key: "k"))
                let answer = try await greeter.answer().frame
                return "\(answer.status) \(String(buffer: answer.payload))"
            }
            // A rejection is not kept.
            notes.decision.withLockedValue { $0 = .refuse(.illegalFormat) }
            var answers = [try await call()]
            notes.decision.withLockedValue { $0 = .admit }
            for _ in 0..<2 { answers.append(try await call()) }
            notes.decision.withLockedValue { $0 = .refuse(.noPermission) }
            answers.append(try await call())
            #expect(answers == ["303 ", "200 once", "200 once", "405 "])
            #expect(self.runs.withLockedValue { $0 } == 1)
            #expect(server.statistics[.idempotentRepeats] == 1)
        }
    }

    @Test func aRouterSaysWhetherItRequiresAnIdentity() {
        #expect(!self.makeRouter().requiresIdentity)
        #expect(!self.makeRouter(LoggingMiddleware(), Notes()).requiresIdentity)
        #expect(self.makeRouter(LoggingMiddleware(), AuthenticationMiddleware(except: [signIn])).requiresIdentity)
        var router = self.makeRouter()
        router.group(AuthenticationMiddleware()) { $0.handle(110) { _, _ in ByteBuffer() } }
        #expect(!router.requiresIdentity, "the others are open to strangers")
    }

    // MARK: Observers

    @Test func observersAreNotifiedOfEveryRefusal() async throws {
        let (notes, inner) = (Notes(), Notes())
        let release = Gate()
        var router = self.makeRouter(notes, AuthenticationMiddleware(except: [echo, count, 110, 111, 120]))
        router.group(inner, limits: RouteLimits(maximumBodyLength: 4, maximumInFlight: 1)) { group in
            group.handle(110) { _, _ in
                try await release.wait()
                return ByteBuffer()
            }
            group.handle(111) { request, _ in request.body }
        }
        try await self.withGreeter(router) { greeter, server in
            func status(
                _ type: UInt32,
                _ serial: UInt32,
                _ body: String = "",
                _ metadata: WireMetadata? = nil
            ) async throws -> Status {
                try await greeter.call(type, serial: serial, ByteBuffer(string: body), metadata)
                return try await greeter.answer().frame.status
            }
            try await greeter.call(110, serial: 50)
            try await eventually("a request in flight") { server.requestsInFlight == 1 }
            let statuses = [
                try await status(110, 51), try await status(111, 52, "fives"), try await status(120, 53),
                try await status(signOut, 54), try await status(echo, 55, "", WireMetadata(deadline: 0)),
                try await status(echo, 50), try await status(121, 56),
            ]
            #expect(
                statuses == [
                    .overloaded, .illegalLength, .undefinedType, .noPermission, .deadlineExceeded, .illegalFormat,
                    .noPermission,
                ]
            )
            // With a body that cannot be decompressed, which is detected in a task.
            let payload = ByteBuffer(string: "x")
            await greeter.client.perform(
                .frame(Frame(type: echo | FrameType.compressionFlag, serial: 57, payload: payload))
            )
            #expect(try await greeter.answer().frame.status == .illegalFormat)
            release.open()
            #expect(try await greeter.answer().frame.status == .ok)
        }
        let expected: [Notes.Refusal] = [
            .init(type: 110, serial: 51, status: .overloaded),
            .init(type: 111, serial: 52, status: .illegalLength),
            .init(type: 120, serial: 53, status: .undefinedType),
            .init(type: signOut, serial: 54, status: .noPermission),
            .init(type: echo, serial: 55, status: .deadlineExceeded),
            .init(type: echo, serial: 50, status: .illegalFormat),
            .init(type: 121, serial: 56, status: .noPermission),
            .init(type: echo, serial: 57, status: .illegalFormat),
        ]
        #expect(notes.refusals.withLockedValue { $0 } == expected)
        #expect(inner.refusals.withLockedValue { $0 } == Array(expected.prefix(2)))
    }

    @Test func logsAndMetricsHaveNoHoles() async throws {
        let metrics = TestMetrics()
        let log = InMemoryLogHandler()
        var configuration = SocketServer.Configuration()
        configuration.logger = Logger(label: "test", factory: { _ in log })
        let router = self.makeRouter(
            MetricsMiddleware(factory: metrics),
            LoggingMiddleware(level: .notice),
            AuthenticationMiddleware(except: [signIn])
        )
        try await self.withGreeter(router, configuration: configuration) { greeter, _ in
            for (type, status) in [(echo, .noPermission), (signIn, .ok), (echo, .ok), (999, .undefinedType)]
                as [(UInt32, Status)]
            {
                try await greeter.call(type, ByteBuffer(string: "ann"))
                #expect(try await greeter.answer().frame.status == status)
            }
            try await eventually("the lines") {
                log.entries.count { $0.message == "answered" || $0.message == "refused" } == 4
            }
        }
        let refused = log.entries.filter { $0.message == "refused" }
        #expect(Set(refused.compactMap { $0.metadata["status"]?.description }) == ["405", "401"])
        for (type, status, count) in [
            ("\(echo)", Status.noPermission, 1), ("\(echo)", .ok, 1), ("other", .undefinedType, 1),
        ] as [(String, Status, Int64)] {
            let counter = try metrics.expectCounter(
                "hhsocket.server.answers",
                [("type", type), ("status", "\(status)")]
            )
            #expect(counter.totalValue == count)
        }
    }
}
