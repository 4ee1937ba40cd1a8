// SPDX-License-Identifier: Apache-2.0
#if Outbox
import HHSocketServer

/// The server: twelve posts and their likes, kept only in memory.
actor FeedServer: Feed_Feed.ServiceProtocol {
    private var posts: [Feed_Post] = (1...12).map { number in
        var post = Feed_Post()
        post.number = UInt64(number)
        post.author = ["Ada", "Grace", "Edsger", "Barbara"][number % 4]
        post.text = "This is post number \(number)."
        return post
    }
    /// Changes with each visible change.
    private var revision = 1
    private var likes: UInt32 = 0

    /// Opens the server on a port of 127.0.0.1; the system chooses one for 0.
    func open(port: Int) async throws -> SocketServer {
        var router = Router()
        // Methods that wait for this actor and compute little need no other thread.
        router.register(self, on: .connection)
        var configuration = SocketServer.Configuration(port: port)
        // Answers to idempotency keys are kept for as long as an outbox may repeat a message.
        configuration.hello.idempotency.lifetime = .seconds(7 * 24 * 60 * 60)
        let server = SocketServer(configuration: configuration, router: router)
        try await server.start()
        return server
    }

    /// Throws 304 if the client already has the current revision.
    private func checkRevision(_ context: ServerContext) throws {
        context.answerMetadata["revision"] = "\(self.revision)"
        if context.metadata["revision"] == "\(self.revision)" { throw StatusError(.notModified) }
    }

    func list(_ request: Feed_ListRequest, context: ServerContext) async throws -> Feed_PostPage {
        guard (1...100).contains(request.limit),
            let first = Int(request.cursor.isEmpty ? "0" : request.cursor), first >= 0
        else { throw StatusError(.illegalFormat) }
        try self.checkRevision(context)
        let newestFirst = self.posts.reversed().dropFirst(first)
        var page = Feed_PostPage()
        page.posts = Array(newestFirst.prefix(Int(request.limit)))
        if newestFirst.count > page.posts.count { page.nextCursor = "\(first + page.posts.count)" }
        return page
    }

    func me(_ request: Google_Protobuf_Empty, context: ServerContext) async throws -> Feed_Profile {
        try self.checkRevision(context)
        var profile = Feed_Profile()
        profile.name = "you"
        profile.likes = self.likes
        return profile
    }

    func like(_ request: Feed_LikeRequest, context: ServerContext) async throws -> Google_Protobuf_Empty {
        guard let index = self.posts.firstIndex(where: { $0.number == request.post }) else {
            // Final: an outbox need not try again.
            throw StatusError(.illegalFormat)
        }
        self.posts[index].likes += 1
        self.likes += 1
        self.revision += 1
        return Google_Protobuf_Empty()
    }
}
#endif
