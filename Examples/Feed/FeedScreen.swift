// SPDX-License-Identifier: Apache-2.0
#if Outbox
import HHSocketOutbox
import HHSocketApp
import HHSocketRPC

/// A screen with the feed, and its actions. It is created for each visit; its release cancels its calls.
actor FeedScreen {
    private let calls: APIManager
    private let cache: ResponseCache
    private let outbox: Outbox
    private var recorder = PageRecorder(.cursor(pageSize: 5))
    private(set) var posts: [Feed_Post] = []
    private(set) var profile = Feed_Profile()
    /// The source of the last page: the server or the cache.
    private(set) var source = ResponseSource.network

    /// - Parameters:
    ///   - cache: The app's cache, so that a screen that is visited again appears immediately.
    ///   - outbox: The app's outbox, so that likes are sent even after the screen was released.
    init(client: SocketClient, cache: ResponseCache, outbox: Outbox) {
        self.calls = APIManager(client: client, cache: cache)
        self.cache = cache
        self.outbox = outbox
    }

    var hasMore: Bool { self.recorder.hasMore }

    /// Loads the profile and the first page into the cache, before the screen is shown.
    func warmUp() async throws -> SocketTaskGroup.Outcome {
        let group = SocketTaskGroup()
        group.add(try self.profileRequest(), to: self.calls)
        group.add(try self.listRequest(cursor: nil), to: self.calls)
        return await group.run()
    }

    private func profileRequest() throws -> APIRequest<Feed_Profile> {
        var request = try APIRequest(Feed_Feed.Methods.me, Google_Protobuf_Empty())
        request.cachePolicy = .returningCached
        return request
    }

    private func listRequest(cursor: String?) throws -> APIRequest<Feed_PostPage> {
        var message = Feed_ListRequest()
        message.cursor = cursor ?? ""
        message.limit = UInt32(self.recorder.pageSize)
        var request = try APIRequest(Feed_Feed.Methods.list, message)
            .page(cursor == nil ? .first : .later) { $0.posts.isEmpty }
        request.cachePolicy = .returningCached
        return request
    }

    /// Loads the profile and the first page concurrently.
    func open() async throws {
        async let profile = self.calls.value(for: self.profileRequest())
        // A screen is shown from the cache, if the answers arrived within the last minute.
        try await self.load(self.recorder.beginRefresh(now: .now()), validFor: .seconds(60))
        self.profile = try await profile
    }

    /// Loads the first page again; if it has not changed, the server only confirms that.
    func refresh() async throws {
        try await self.load(self.recorder.beginRefresh(now: .now()), validFor: .zero)
    }

    /// Loads the page after the last, if there is one.
    func loadMore() async throws {
        try await self.load(self.recorder.beginLoadMore(now: .now()), validFor: .seconds(60))
    }

    private func load(_ page: PageRequest?, validFor validity: Duration) async throws {
        // Another page is being loaded, or there are no more.
        guard let page else { return }
        do {
            var request = try self.listRequest(cursor: page.cursor)
            request.validity = validity
            let response = try await self.calls.response(for: request)
            let list = response.value
            let next = list.nextCursor.isEmpty ? nil : list.nextCursor
            switch self.recorder.finish(page.token, Page(list.posts, nextCursor: next)) {
            case .replace: self.posts = list.posts
            case .append: self.posts += list.posts
            case .ignore: return
            }
            self.source = response.source
        } catch {
            self.recorder.fail(page.token)
            throw error
        }
    }

    /// Likes a post. Returns when the like is on disk: it may reach the server later.
    func like(_ number: UInt64) async throws {
        var like = Feed_LikeRequest()
        like.post = number
        try await self.outbox.enqueue(OutboxMessage(Feed_Feed.Methods.like, like, topic: "likes"))
        // The profile contains the number of likes.
        self.cache.removeAll(ofType: Feed_Feed.Methods.me.type)
    }
}
#endif
