// SPDX-License-Identifier: Apache-2.0
import HHSocketApp
import HHSocketServer
import TestSupport
import Testing

struct Accounts: ServerMiddleware {
    let store: Shop

    init(_ store: Shop) { self.store = store }

    func handle(
        _ request: ServerRequest,
        _ context: ServerContext,
        next: Router.Handler
    ) async throws -> ByteBuffer {
        var context = context
        context[Account.self] = await self.store.account(of: context.session.identity)
        return try await next(request, context)
    }
}

enum Account: ServerContextKey { typealias Value = String }

struct Tenants: ServerAdmission {
    func admit(_ header: RequestHeader, _ session: ServerSession) -> Admission {
        header.metadata["tenant"] == session[Tenant.self] ? .admit : .refuse(.noPermission)
    }
}

enum Tenant: ServerSessionKey { typealias Value = String }

private let overloads = Watched(0)

struct Refusals: RefusalObserver {
    func refused(_ header: RequestHeader, with status: Status, in session: ServerSession) {
        if status == .overloaded { overloads.increment() }
    }
}

enum Room: ServerSessionKey { typealias Value = String }

/// The part that a service would provide.
actor Shop {
    struct SoldOut: Error {}
    struct Unavailable: Error {}

    private(set) var saved: [ByteBuffer] = []
    private var seats: Set<Int> = []

    func save(_ body: ByteBuffer) throws {
        guard body.readableBytes < 100 else { throw Unexpected(description: "too much") }
        self.saved.append(body)
    }

    func news() -> (ByteBuffer, String) { (ByteBuffer(string: "news of today"), "monday") }
    func account(of identity: String?) -> String? { identity.map { "account of \($0)" } }
    func ticket(_ isThere: Bool) throws { if isThere { throw SoldOut() } else { throw Unavailable() } }
    nonisolated func countByBlocking() -> Int { 7 }
    func reserve(_ seat: Int) -> Bool { self.seats.insert(seat).inserted }
    func user(withToken token: [UInt8]) -> String? { token == Array("ann's".utf8) ? "ann" : nil }
}

/// The examples of `Server.md`, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ServerGuideTests {
    private let store = Shop()
    private let logger = Logger(label: "guide", factory: { _ in SwiftLogNoOpLogHandler() })

    @Test func everyExampleOfThePageIsInThisFile() throws {
        // Only the tests require clients.
        #expect(try DocumentationPage(guide: "Server").shortcomings(allowing: ["HHSocketApp"]) == [])
    }

    private func router() -> Router {
        let store = self.store
        var router = Router()
        // In a Swift task of its own.
        router.handle(101) { request, context in
            try await store.save(request.body)
            return ByteBuffer(string: "saved")
        }
        // On the connection's event loop, without a task: the fastest way, for work of microseconds.
        router.handleSynchronously(102) { request, _ in request.body }
        // On a thread that may block, such as with a library that waits for a database.
        router.handleBlocking(103) { _, _ in ByteBuffer(string: "\(store.countByBlocking())") }

        router.handle(104) { request, _ in
            guard let seat = Int(String(buffer: request.body)) else { throw StatusError(.illegalFormat) }
            guard await store.reserve(seat) else { throw StatusError(.noPermission, body: ByteBuffer(string: "taken")) }
            return ByteBuffer()
        }

        router.handle(110) { request, context in
            guard let user = await store.user(withToken: Array(request.body.readableBytesView)) else {
                throw StatusError(.noPermission)
            }
            context.session.authenticate(as: user)
            context.session[Room.self] = "kitchen"
            return ByteBuffer(string: user)
        }
        router.handle(111) { request, context in
            // To the client that asks, before the answer.
            await context.session.push(type: 2001, body: ByteBuffer(string: context.session[Room.self] ?? "nowhere"))
            return ByteBuffer()
        }

        router.handle(120) { request, context in
            let tenant = context.metadata["tenant"] ?? "nobody"
            context.answerMetadata = ["region": "eu"]
            // By this machine's clock. The task is cancelled then; slow work can check before it begins.
            let left = context.deadline.map { $0 - .now() }
            return ByteBuffer(string: "\(tenant), \(left == nil ? "whenever" : "soon")")
        }
        router.handle(130) { _, context in
            let (body, revision) = await store.news()
            context.answerMetadata = ["revision": revision]
            if context.metadata["revision"] == revision { throw StatusError(.notModified) }
            return body
        }

        let limits = RouteLimits(maximumInFlight: 100, timeout: .seconds(600))
        router.stream(140, kind: .clientStreaming, limits: limits) { stream, context in
            var count = 0
            for try await item in stream.items {
                try await store.save(item)
                count += 1
            }
            context.answerMetadata = ["region": "eu"]
            return ByteBuffer(string: "\(count)")
        }
        return router
    }

    @Test func requestsAndErrors() async throws {
        try await Pair.with(.standard, router: self.router(), configureServer: { $0.logger = self.logger }) {
            client,
            _ in
            let answers = try await [
                client.data(for: SocketRequest(type: 101, body: "this")),
                client.data(for: SocketRequest(type: 102, body: "that")),
                client.data(for: SocketRequest(type: 103)),
                client.data(for: SocketRequest(type: 104, body: "7")),
            ]
            #expect(answers.map(\.string) == ["saved", "that", "7", ""])
            #expect(await self.store.saved == [ByteBuffer(string: "this")])
            func error(_ type: UInt32, _ body: String) async -> SocketError? {
                await #expect(throws: SocketError.self) {
                    try await client.data(for: SocketRequest(type: type, body: body))
                }
            }
            #expect(await error(104, "aisle")?.code == .illegalFormat)
            let taken = await error(104, "7")
            #expect(taken?.code == .noPermission)
            #expect(taken?.body == ByteBuffer(string: "taken"))
            let failed = await error(101, String(repeating: "x", count: 100))
            #expect(failed?.code == .unknown)
            #expect(failed?.body?.readableBytes == 0)
            #expect(await error(199, "")?.code == .undefinedType)
        }
    }

    @Test func listeningAndTheEnd() async throws {
        let folder = try TemporaryFolder()
        let path = folder.file("socket")
        let router = self.router()
        let logger = self.logger
        var configuration = SocketServer.Configuration(listeners: [
            ServerListener(host: "127.0.0.1", port: 0),
            ServerListener(port: 0, wireFormat: .plain),
            ServerListener(unixPath: path),
        ])
        configuration.logger = logger
        let server = SocketServer(configuration: configuration, router: router)

        try await server.start()
        print("listening on \(server.addresses)")
        let addresses = server.addresses
        #expect(addresses.count == 3 && addresses[2] == Endpoint(unixPath: path))
        for (index, address) in addresses.enumerated() {
            let client = SocketClient.connecting(to: address) {
                $0.socket.wireFormat = index == 1 ? .plain : .standard
            }
            #expect(try await client.data(for: SocketRequest(type: 102, body: "hello")).string == "hello")
            await client.close()
        }
        await server.shutdown()
        #expect(server.addresses.isEmpty)
        withExtendedLifetime(folder) {}
        try await self.serveInAGroup(SocketServer(configuration: .init(), router: router))
    }

    /// Until it is told to end, which a signal does in the example.
    private func serveInAGroup(_ server: SocketServer) async throws {
        let serving = Task {
            let group = ServiceGroup(
                services: [server],
                gracefulShutdownSignals: [.sigterm, .sigint],
                logger: logger
            )
            try await group.run()
        }
        try await eventually("it listens") { server.address != nil }
        serving.cancel()
        _ = await serving.result
        #expect(server.address == nil)
    }

    @Test func middlewareInItsOrder() async throws {
        let store = self.store
        var router = self.router()
        router.use(TracingMiddleware())
        router.use(MetricsMiddleware())
        router.use(LoggingMiddleware(level: .info))
        router.use(Accounts(store))

        router.use(AuthenticationMiddleware(except: [110]))
        router.use(Tenants())
        router.admit { header, _ in header.length > 1 << 20 ? .refuse(.illegalFormat) : .admit }

        router.use(Refusals())
        router.handle(144) { _, context in ByteBuffer(string: context[Account.self] ?? "nobody") }

        router.limit(102, to: RouteLimits(maximumBodyLength: 1_024))

        try await Pair.with(.standard, router: router, configureServer: { $0.logger = self.logger }) { client, _ in
            func code(_ type: UInt32, _ body: String) async -> SocketError.Code? {
                await #expect(throws: SocketError.self) {
                    try await client.data(for: SocketRequest(type: type, body: body))
                }?.code
            }
            #expect(await code(102, "who am I?") == .noPermission)
            _ = try await client.data(for: SocketRequest(type: 110, body: "ann's"))
            #expect(try await client.data(for: SocketRequest(type: 102, body: "let in")).string == "let in")
            #expect(try await client.data(for: SocketRequest(type: 144)).string == "account of ann")
            #expect(await code(102, String(repeating: "x", count: 1_025)) == .illegalLength)
            #expect(await code(102, String(repeating: "x", count: (1 << 20) + 1)) == .illegalFormat)
        }
    }

    @Test func groupsAndAnswersToErrors() async throws {
        let store = self.store
        let signIn: Router.Handler = { _, context in
            context.session.authenticate(as: "ann")
            return ByteBuffer()
        }
        let timeline: Router.Handler = { _, context in ByteBuffer(string: context[Account.self] ?? "nobody") }
        let (search, export) = (timeline, timeline)
        var router = self.router()
        router.handle(140, signIn)
        router.group(Accounts(store), limits: RouteLimits(maximumBodyLength: 64 << 10)) { group in
            group.handle(141, timeline)
            group.group(limits: RouteLimits(maximumInFlight: 100, timeout: .seconds(2))) { quick in
                quick.handle(142, search)
                quick.handle(143, limits: RouteLimits(timeout: .seconds(10)), export)
            }
        }

        router.mapErrors { error in
            switch error {
            case is Shop.SoldOut: StatusError(.noPermission, body: ByteBuffer(string: "sold out"))
            case is Shop.Unavailable: StatusError(.database)
            default: nil
            }
        }
        router.handle(150) { request, _ in
            try await store.ticket(request.body.readableBytes > 0)
            return ByteBuffer()
        }
        try await Pair.with(.standard, router: router) { client, _ in
            _ = try await client.data(for: SocketRequest(type: 140))
            for type in 141...143 as ClosedRange<UInt32> {
                #expect(try await client.data(for: SocketRequest(type: type)).string == "account of ann")
            }
            let soldOut = await #expect(throws: SocketError.self) {
                try await client.data(for: SocketRequest(type: 150, body: "x"))
            }
            #expect(soldOut?.code == .noPermission && soldOut?.body == ByteBuffer(string: "sold out"))
            let unavailable = await #expect(throws: SocketError.self) {
                try await client.data(for: SocketRequest(type: 150))
            }
            #expect(unavailable?.code == .database)
        }
    }

    @Test func connections() async throws {
        struct Presence: Sendable {
            let numbers = Watched<Set<UInt64>>([])
            func add(_ number: UInt64) { self.numbers.withLockedValue { _ = $0.insert(number) } }
            func remove(_ number: UInt64) { self.numbers.withLockedValue { _ = $0.remove(number) } }
        }
        let presence = Presence()
        func configure(_ configuration: inout SocketServer.Configuration) {
            let devices = ["5e2f…": "kiosk 7"]
            configuration.connections.admit = { client in
                // Of clients with a certificate, by it. Others may sign in later.
                guard let fingerprint = client.certificateFingerprint else { return .admit }
                guard let name = devices[fingerprint] else { return .refuse(reason: "this device is not registered") }
                return .admitAs(name)
            }
            configuration.connections.onConnect = { session in presence.add(session.id) }
            configuration.connections.onClose = { session, reason in presence.remove(session.id) }
        }
        try await Pair.with(.standard, router: self.router(), configureServer: configure) { client, server in
            _ = try await client.data(for: SocketRequest(type: 110, body: "ann's"))
            let names = server.sessions.compactMap(\.identity)
            #expect(names == ["ann"] && presence.numbers.current.count == 1)
        }
        try await eventually("nobody is there") { presence.numbers.current.isEmpty }
    }

    @Test func sessionsAndPushes() async throws {
        try await Pair.with(.standard, router: self.router()) { client, server in
            let pushes = client.pushes(ofType: 2001)
            #expect(try await client.data(for: SocketRequest(type: 110, body: "ann's")).string == "ann")
            _ = try await client.data(for: SocketRequest(type: 111))

            // To every connection; to those of one client; to one of these.
            let all = await server.push(type: 2001, body: ByteBuffer(string: "news"))
            let hers = await server.push(type: 2001, body: ByteBuffer(string: "for you"), to: "ann")
            for session in server.sessions(of: "ann") {
                await session.push(type: 2001, body: ByteBuffer(string: "from \(session.id)"))
            }

            #expect((all, hers) == (1, 1))
            var came: [String] = []
            for await push in pushes {
                came.append(push.string)
                if came.count == 4 { break }
            }
            #expect(came == ["kitchen", "news", "for you", "from 1"])
        }
    }

    @Test func helloAndWhatFollowsFromIt() async throws {
        let store = self.store
        func configure(_ configuration: inout SocketServer.Configuration) {
            configuration.hello.isRequired = true
            configuration.hello.authenticate = { token, _ in
                guard let user = await store.user(withToken: token) else { throw StatusError(.noPermission) }
                return user
            }
            configuration.hello.maximumConcurrentAuthentications = 32
            configuration.hello.compression = CompressionPolicy(minimumLength: 4_096)
            configuration.hello.idempotency.lifetime = .seconds(3_600)
        }
        try await Pair.with(
            .standard,
            router: self.router(),
            configureServer: configure,
            configureClient: { $0.hello = HelloPolicy(isRequired: true, sessionToken: { Array("ann's".utf8) }) }
        ) { client, server in
            var request = SocketRequest(type: 120)
            request.metadata = ["tenant": "acme"]
            request.deadline = .now() + .seconds(300)
            let response = try await client.data(for: request)
            #expect(response.string == "acme, soon")
            #expect(response.metadata == ["region": "eu"])
            #expect(server.sessions(of: "ann").count == 1)

            // With a key, the repeat of a request that can run only once is not rejected.
            var reservation = SocketRequest(type: 104, body: "7")
            reservation.idempotencyKey = "7c9e6679"
            for _ in 0..<2 {
                let answer = try await client.data(for: reservation)
                #expect(answer.status == .ok)
            }
            #expect(server.statistics[.idempotentRepeats] == 1)
        }
    }

    @Test func revisions() async throws {
        try await Pair.with(.standard, router: self.router(), configureClient: { $0.hello = HelloPolicy() }) {
            client,
            _ in
            let manager = APIManager(client: client)
            var request = APIRequest(SocketRequest(type: 130)) { $0.string }
            request.cachePolicy = .returningCached
            request.validity = .zero
            let sources: [ResponseSource] = [.network, .revalidated, .revalidated]
            for source in sources {
                let response = try await manager.response(for: request)
                #expect(response.value == "news of today" && response.source == source)
            }
        }
        // Without hello the server sends the whole answer each time.
        try await Pair.with(.standard, router: self.router()) { client, _ in
            let response = try await client.data(for: SocketRequest(type: 130))
            #expect(response.string == "news of today" && response.metadata.isEmpty)
        }
    }

    @Test func streams() async throws {
        try await Pair.with(.standard, router: self.router()) {
            $0.streams?.maximumStreams = 1
        } configureClient: {
            $0.streams = StreamPolicy()
        } _: { client, _ in
            let stream = try await client.stream(for: SocketRequest(type: 140), kind: .clientStreaming)
            for item in ["one", "two"] { try await stream.send(ByteBuffer(string: item)) }
            stream.finish()
            let response = try await stream.response
            #expect(response.string == "2" && response.metadata == ["region": "eu"])
            #expect(await self.store.saved == [ByteBuffer(string: "one"), ByteBuffer(string: "two")])
        }
    }

    @Test func limitsAndTheEnd() {
        var configuration = SocketServer.Configuration()
        configuration.limits.maximumConnections = 100_000
        configuration.limits.maximumSessionsPerIdentity = 10
        configuration.limits.maximumInFlightPerIdentity = 1_000
        configuration.limits.requestRate = RequestRate(perSecond: 50, burst: 200)
        configuration.limits.concurrency = AdaptiveConcurrency()

        configuration.limits.strangers.maximumPayloadLength = 16 << 10
        configuration.limits.strangers.maximumInFlight = 2
        configuration.limits.strangers.timeToBecomeKnown = .seconds(30)
        configuration.limits.handlerTimeout = .seconds(60)

        configuration.streams?.maximumStreams = 20
        configuration.streams?.idleLimit = .seconds(60)

        configuration.shutdown.gracePeriod = .seconds(30)
        configuration.shutdown.retryAfter = .zero ... .seconds(10)
        configuration.shutdown.otherEndpoints = [Endpoint(host: "im2.example.com", port: 7000)]

        #expect(configuration.limits.requestRate?.burst == 200)
        #expect(configuration.shutdown.otherEndpoints.map(\.description) == ["im2.example.com:7000"])
    }

    @Test func proxiesAreListed() throws {
        var configuration = SocketServer.Configuration()
        // Balancers whose connections begin with a PROXY header, before TLS.
        configuration.listeners[0].proxies.proxyProtocol = [try IPNetwork("10.0.0.0/24"), try IPNetwork("fd00::7")]
        // Proxies of HTTP that open WebSockets, with the client's address in X-Forwarded-For.
        configuration.listeners[0].proxies.forwardedFor = [try IPNetwork("10.0.1.7")]

        let proxies = configuration.listeners[0].proxies
        #expect(proxies.proxyProtocol.map(\.description) == ["10.0.0.0/24", "fd00::7"])
        #expect(proxies.forwardedFor.map(\.description) == ["10.0.1.7"])
    }

    @Test func theCertificateIsReloaded() async throws {
        let files = try TestServerFiles()
        let (certificate, key) = (files.certificate, files.key)
        var configuration = SocketServer.Configuration()
        configuration.listeners[0].tls = ServerTLS(
            identity: TLSIdentity(certificateFile: certificate, keyFile: key)
        )
        let server = SocketServer(configuration: configuration, router: self.router())
        try await server.start()
        // From time to time, or on a signal: the files are read again.
        try server.reloadTLS()
        await server.shutdown(gracePeriod: .zero)
    }

    @Test func keptAnswersHaveBounds() {
        var configuration = SocketServer.Configuration()
        configuration.hello.idempotency.maximumCount = 1_000_000
        configuration.hello.idempotency.maximumBytes = 512 << 20

        #expect(configuration.hello.idempotency != IdempotencyPolicy())
        // The defaults that the page names.
        let policy = IdempotencyPolicy()
        #expect((policy.maximumCount, policy.maximumBytes, policy.maximumAnswerBytes) == (100_000, 64 << 20, 1 << 20))
        #expect((policy.identityShare, policy.addressShare) == (1.0 / 16, 1.0 / 64))
    }

    @Test func certificatesByHostAndWhatElseTLSCanSay() async throws {
        let files = try TestServerFiles()
        let (chatCertificate, chatKey) = (files.certificate, files.key)
        let (wildcardCertificate, wildcardKey) = (files.certificate, files.key)
        let authority = files.ca
        let revoked = try files.folder.write(testRevocationList(), to: "revoked.pem")
        var tls = ServerTLS(identity: TLSIdentity(certificateFile: files.certificate, keyFile: files.key))
        tls.identitiesByHost = [
            "chat.example.com": TLSIdentity(certificateFile: chatCertificate, keyFile: chatKey),
            "*.example.org": TLSIdentity(certificateFile: wildcardCertificate, keyFile: wildcardKey),
        ]
        tls.fileCheckInterval = .seconds(10)

        tls.clientCertificates = .required(.file(authority))
        tls.revocationLists = [.file(revoked)]

        tls.applicationProtocols = ["hhsocket.1"]
        tls.requiresApplicationProtocol = true
        tls.minimumVersion = .tls12
        tls.cipherSuites = [.ecdheECDSAWithAES256GCM, .ecdheRSAWithAES256GCM]
        tls.keyExchangeGroups = [.secp384r1, .secp256r1]

        let server = SocketServer(configuration: .init(tls: tls), router: self.router())
        try await server.start()
        try server.reloadTLS()
        await server.shutdown(gracePeriod: .zero)
    }
}
