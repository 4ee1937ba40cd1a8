// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketApp
import HHSocketTesting
import TestSupport
import Testing

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

final class Download: SocketTaskGroupMember {
    private let task: URLSessionDataTask

    init(_ url: URL, _ end: @escaping @Sendable ((any Error)?) -> Void) {
        self.task = URLSession.shared.dataTask(with: url) { _, _, error in end(error) }
    }

    func resume() { self.task.resume() }
    func cancel() { self.task.cancel() }
}

/// The examples of two sections of `AppLayer.md`, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TaskGroupGuideTests {
    @Test(arguments: ["Task groups", "Pagination"])
    func everyExampleOfTheSectionIsInThisFile(section: String) throws {
        let allowed: Set<String> = ["Foundation", "FoundationNetworking", "HHSocketApp"]
        #expect(try DocumentationPage(guide: "AppLayer", section: section).shortcomings(allowing: allowed) == [])
    }

    @Test func severalCalls() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)
        let (profileRequest, friendsRequest) = (
            SocketRequest(type: 101, body: "me"), SocketRequest(type: 102, body: "others")
        )
        @Sendable func prepareImages() async throws {}

        let group = SocketTaskGroup { outcome in
            print(outcome.isCancelled, outcome.failures.map(\.index))
        }
        group.add(profileRequest, to: client) { result in print(result) }
        group.add(friendsRequest, to: client, weight: 3) { result in print(result) }
        group.addOperation { try await prepareImages() }
        group.resume()

        let answers = await group.run()
        #expect(answers.memberCount == 3)
        try answers.get()
    }

    @Test func membersOfOtherKinds() async throws {
        // Nothing listens there.
        let url = try #require(URL(string: "http://127.0.0.1:1/"))
        let group = SocketTaskGroup()

        group.add { end in Download(url, end) }
        // A group is a member of another like anything else.
        let everything = SocketTaskGroup()
        everything.add(group)
        let outcome = await everything.run()

        #expect(outcome.failures.count == 1)
        #expect(group.outcome?.failures.first?.error is URLError)
    }

    @Test func withAsyncLet() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)
        let (profileRequest, friendsRequest) = (
            SocketRequest(type: 101, body: "me"), SocketRequest(type: 102, body: "others")
        )

        let (profile, friends) = try await withSocketTaskGroup { group in
            async let profile = group.data(for: profileRequest, with: client)
            async let friends = group.data(for: friendsRequest, with: client)
            return try await (profile.string, friends.string)
        }

        #expect((profile, friends) == ("me", "others"))
    }

    @Test func pages() async throws {
        @Sendable func load(_ request: PageRequest) async throws -> Page<Int> {
            let from = request.cursor.flatMap { Int($0) } ?? request.offset
            let items = Array((0..<110).dropFirst(from).prefix(request.pageSize))
            let end = from + items.count
            return Page(items, nextCursor: end < 110 ? "\(end)" : nil)
        }

        var recorder = PageRecorder(.offset(firstPage: 1, pageSize: 20))
        var list: [Int] = []

        func finished(_ request: PageRequest, _ page: Page<Int>) {
            switch recorder.finish(request.token, page) {
            case .replace: list = page.items
            case .append: list += page.items
            case .ignore: break
            }
        }

        if let request = recorder.beginLoadMore(now: .now()) {
            finished(request, try await load(request))
        }

        #expect(list == Array(0..<20))
        list = []

        let pages = Pages(.cursor(pageSize: 50)) { request in
            try await load(request)
        }
        for try await page in pages {
            list += page.items
        }

        #expect(list == Array(0..<110))
    }
}
