// SPDX-License-Identifier: Apache-2.0
import HHSocketApp
import HHSocketRPC
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

extension PageRecorder {
    /// Begins a load that must not be rejected.
    fileprivate mutating func loadMore(at now: NIODeadline) throws -> PageRequest {
        let request = self.beginLoadMore(now: now)
        return try #require(request)
    }

    fileprivate mutating func refresh(at now: NIODeadline) throws -> PageRequest {
        let request = self.beginRefresh(now: now)
        return try #require(request)
    }
}

@Suite(.timeLimit(.minutes(30))) struct PageRecorderTests {
    private let start = NIODeadline.uptimeNanoseconds(1_000_000_000)

    @Test func pagesByNumber() throws {
        for firstPage in [0, 1] {
            var recorder = PageRecorder(.offset(firstPage: firstPage, pageSize: 20))
            #expect((recorder.page, recorder.count, recorder.hasMore) == (nil, 0, true))
            #expect(recorder.pageSize == 20)
            #expect(recorder.lastRequestTime == nil)
            for number in 0..<3 {
                let now = self.start + .seconds(Int64(number))
                let request = try recorder.loadMore(at: now)
                #expect((request.page, request.pageSize, request.offset) == (firstPage + number, 20, number * 20))
                #expect(request.cursor == nil)
                #expect(recorder.lastRequestTime == now)
                let verdict = recorder.finish(request.token, count: number == 2 ? 7 : 20)
                #expect(verdict == (number == 0 ? .replace : .append))
                #expect(recorder.page == firstPage + number)
            }
            #expect((recorder.count, recorder.hasMore) == (47, false))
            #expect(recorder.beginLoadMore(now: self.start) == nil)
        }
    }

    @Test func pagesByCursor() throws {
        var recorder = PageRecorder(.cursor(pageSize: 2))
        var cursors: [String?] = []
        for next in ["a", "b", nil] as [String?] {
            let request = try recorder.loadMore(at: self.start)
            cursors.append(request.cursor)
            // A short page with a cursor has another after it.
            _ = recorder.finish(request.token, count: 1, nextCursor: next)
        }
        #expect(cursors == [nil, "a", "b"])
        #expect((recorder.page, recorder.count, recorder.hasMore) == (3, 3, false))
    }

    @Test(
        arguments: [
            // The received page, and whether there are more.
            (20, nil, nil, true), (19, nil, nil, false), (0, nil, nil, false),
            (20, 20, nil, false), (5, 30, nil, true), (20, 30, nil, true), (30, 30, nil, false),
            (5, nil, true, true), (20, nil, false, false), (20, 100, false, false), (5, 5, true, true),
            (0, 100, nil, false), (0, nil, true, false), (-3, nil, nil, false),
        ] as [(Int, Int?, Bool?, Bool)]
    )
    func whetherThereIsMoreByNumber(count: Int, total: Int?, flag: Bool?, expected: Bool) throws {
        var recorder = PageRecorder(.offset(pageSize: 20))
        let request = try recorder.loadMore(at: self.start)
        _ = recorder.finish(request.token, count: count, total: total, hasMore: flag)
        #expect(recorder.hasMore == expected)
        #expect(recorder.count == max(0, count))
    }

    @Test(
        arguments: [
            (2, "next", nil, true), (2, nil, nil, false), (2, "next", false, false), (2, nil, true, false),
            (0, "next", nil, false), (1, "next", true, true),
        ] as [(Int, String?, Bool?, Bool)]
    )
    func whetherThereIsMoreByCursor(count: Int, cursor: String?, flag: Bool?, expected: Bool) throws {
        var recorder = PageRecorder(.cursor(pageSize: 2))
        let request = try recorder.loadMore(at: self.start)
        _ = recorder.finish(request.token, count: count, nextCursor: cursor, hasMore: flag)
        #expect(recorder.hasMore == expected)
    }

    @Test func anEmptyFirstPageIsNoDataAndAnEmptyLaterOneNoMore() throws {
        var recorder = PageRecorder(.offset(pageSize: 2))
        #expect(!recorder.isEmpty)
        let only = try recorder.loadMore(at: self.start)
        #expect(recorder.finish(only.token, count: 0) == .replace)
        #expect(recorder.isEmpty)
        recorder.reset()
        let full = try recorder.loadMore(at: self.start)
        #expect(recorder.finish(full.token, count: 2) == .replace)
        let empty = try recorder.loadMore(at: self.start)
        #expect(recorder.finish(empty.token, count: 0) == .append)
        #expect(!recorder.isEmpty)
        #expect((recorder.count, recorder.hasMore) == (2, false))
    }

    @Test func aRefreshMakesTheAnswerToALoadMoreVoid() throws {
        var recorder = PageRecorder(.offset(pageSize: 2))
        let first = try recorder.loadMore(at: self.start)
        _ = recorder.finish(first.token, count: 2)
        let more = try recorder.loadMore(at: self.start)
        let refresh = try recorder.refresh(at: self.start + .seconds(1))
        #expect((refresh.page, refresh.offset, refresh.kind) == (1, 0, .refresh))
        // In either order.
        #expect(recorder.finish(more.token, count: 2) == .ignore)
        #expect(recorder.count == 2)
        #expect(recorder.finish(refresh.token, count: 1) == .replace)
        #expect(recorder.finish(more.token, count: 2) == .ignore)
        #expect(recorder.fail(more.token) == false)
        #expect((recorder.page, recorder.count, recorder.hasMore) == (1, 1, false))
    }

    @Test func nothingElseBeginsDuringARefreshNorASecondLoadMore() throws {
        var recorder = PageRecorder(.offset(pageSize: 2))
        let refresh = try recorder.refresh(at: self.start)
        #expect(recorder.beginLoadMore(now: self.start) == nil)
        #expect(recorder.beginRefresh(now: self.start) == nil)
        #expect(recorder.lastRequestTime == self.start)
        _ = recorder.finish(refresh.token, count: 2)
        let more = try recorder.loadMore(at: self.start)
        #expect(recorder.beginLoadMore(now: self.start) == nil)
        #expect(recorder.current == more)
    }

    @Test func aRefreshThatFailsDoesNotChangeTheList() throws {
        var recorder = PageRecorder(.cursor(pageSize: 2))
        let first = try recorder.loadMore(at: self.start)
        _ = recorder.finish(first.token, count: 2, nextCursor: "a")
        let refresh = try recorder.refresh(at: self.start)
        #expect(recorder.fail(refresh.token) == true)
        #expect(recorder.fail(refresh.token) == false)
        #expect((recorder.page, recorder.count, recorder.hasMore, recorder.isLoading) == (1, 2, true, false))
        let more = try recorder.loadMore(at: self.start)
        #expect(more.cursor == "a")
    }

    @Test func resetForgetsEverythingAndWhatComesLater() throws {
        var recorder = PageRecorder(.offset(pageSize: 2))
        let first = try recorder.loadMore(at: self.start)
        recorder.reset()
        #expect((recorder.page, recorder.count, recorder.hasMore, recorder.lastRequestTime) == (nil, 0, true, nil))
        let again = try recorder.loadMore(at: self.start)
        #expect(recorder.finish(first.token, count: 2) == .ignore)
        #expect(recorder.finish(again.token, count: 2) == .replace)
    }

    @Test func strangeNumbersDoNotTrap() throws {
        var recorder = PageRecorder(.offset(firstPage: .max, pageSize: -5))
        #expect(recorder.pageSize == 1)
        let request = try recorder.loadMore(at: self.start)
        _ = recorder.finish(request.token, count: .max, hasMore: true)
        #expect(recorder.beginLoadMore(now: self.start) == nil)
        recorder = PageRecorder(.cursor(pageSize: 1))
        for _ in 0..<2 {
            let request = try recorder.loadMore(at: self.start)
            _ = recorder.finish(request.token, count: .max, nextCursor: "more")
        }
        #expect(recorder.count == .max)
    }

    // MARK: Histories

    /// A server's list, and an app that makes requests and gets answers in any order, compared with a model that keeps
    /// everything.
    @Test func randomHistoriesShowWhatTheServerHas() throws {
        for seed in 0..<UInt64(historyCount) {
            var generator = SeededGenerator(seed: seed)
            let pageSize = Int.random(in: 1...5, using: &generator)
            let byCursor = Bool.random(using: &generator)
            let firstPage = Int.random(in: 0...1, using: &generator)
            var recorder = PageRecorder(
                byCursor ? .cursor(pageSize: pageSize) : .offset(firstPage: firstPage, pageSize: pageSize)
            )
            let server = Array(0..<Int.random(in: 0...20, using: &generator))
            var list: [Int] = []
            var asked: [PageRequest] = []
            // The model: the only valid request, and the items of the list when it began.
            var valid: PageRequest?
            for step in 0..<Int.random(in: 1...40, using: &generator) {
                let now = self.start + .seconds(Int64(step))
                switch Int.random(in: 0..<10, using: &generator) {
                case 0, 1:
                    let mayBegin = valid?.kind != .refresh
                    let request = recorder.beginRefresh(now: now)
                    try #require((request != nil) == mayBegin, "seed \(seed), step \(step)")
                    if let request { (valid, asked) = (request, asked + [request]) }
                case 2...4:
                    let hasAll = recorder.page != nil && list.count == server.count
                    let request = recorder.beginLoadMore(now: now)
                    if let request {
                        try #require(valid == nil, "seed \(seed), step \(step)")
                        try #require(request.offset == list.count, "seed \(seed), step \(step)")
                        (valid, asked) = (request, asked + [request])
                    } else {
                        try #require(valid != nil || hasAll, "seed \(seed), step \(step)")
                    }
                case 5...7:
                    guard let request = asked.randomElement(using: &generator) else { break }
                    let from =
                        byCursor ? request.cursor.flatMap { Int($0) } ?? 0 : (request.page - firstPage) * pageSize
                    let items = Array(server.dropFirst(from).prefix(pageSize))
                    let end = from + items.count
                    let page = Page(items, nextCursor: byCursor && end < server.count ? "\(end)" : nil)
                    let verdict = recorder.finish(request.token, page)
                    try #require((verdict != .ignore) == (request == valid), "seed \(seed), step \(step)")
                    switch verdict {
                    case .replace: list = items
                    case .append: list += items
                    case .ignore: break
                    }
                    if request == valid { valid = nil }
                case 8:
                    guard let request = asked.randomElement(using: &generator) else { break }
                    try #require(recorder.fail(request.token) == (request == valid), "seed \(seed), step \(step)")
                    if request == valid { valid = nil }
                default:
                    guard Int.random(in: 0..<4, using: &generator) == 0 else { break }
                    recorder.reset()
                    (list, valid) = ([], nil)
                }
                try #require(recorder.current == valid, "seed \(seed), step \(step)")
                try #require(recorder.count == list.count, "seed \(seed), step \(step)")
                try #require(list == Array(server.prefix(list.count)), "seed \(seed), step \(step)")
            }
            // The rest can be loaded in any case.
            if let valid { recorder.fail(valid.token) }
            while let request = recorder.beginLoadMore(now: self.start) {
                let items = Array(server.dropFirst(list.count).prefix(pageSize))
                let end = list.count + items.count
                _ = recorder.finish(
                    request.token,
                    count: items.count,
                    nextCursor: byCursor && end < server.count ? "\(end)" : nil
                )
                list += items
            }
            try #require(list == server, "seed \(seed)")
        }
    }

    // MARK: Pages

    @Test func pagesAreASequence() async throws {
        for count in 0...7 {
            let asked = NIOLockedValueBox<[Int]>([])
            let pages = Pages(.offset(pageSize: 3)) { request in
                asked.withLockedValue { $0.append(request.page) }
                return Page(Array((0..<count).dropFirst(request.offset).prefix(request.pageSize)))
            }
            var lists: [[Int]] = []
            for try await page in pages { lists.append(page.items) }
            #expect(lists.flatMap { $0 } == Array(0..<count))
            // A first page without items is an element, a later one is not.
            #expect(lists.count == max(1, (count + 2) / 3))
            #expect(asked.withLockedValue { $0 } == Array(1...(count / 3 + 1)))
        }
    }

    @Test func aPageThatFailsMayBeAskedForAgain() async throws {
        struct Offline: Error {}
        let failures = NIOLockedValueBox(1)
        let pages = Pages(.cursor(pageSize: 1)) { request in
            let page = request.cursor.flatMap { Int($0) } ?? 0
            let fails =
                page == 1
                && failures.withLockedValue { failures in
                    defer { failures -= 1 }
                    return failures > 0
                }
            if fails { throw Offline() }
            return Page([page], nextCursor: page < 2 ? "\(page + 1)" : nil)
        }
        var iterator = pages.makeAsyncIterator()
        #expect(try await iterator.next()?.items == [0])
        await #expect(throws: Offline.self) { try await iterator.next() }
        #expect(try await iterator.next()?.items == [1])
        #expect(try await iterator.next()?.items == [2])
        #expect(iterator.recorder.count == 3)
        #expect(try await iterator.next() == nil)
        // Another iterator starts over.
        var other = pages.makeAsyncIterator()
        #expect(try await other.next()?.items == [0])
    }

    @Test func pagesAreLoadedWhenTheyAreAskedFor() async throws {
        let asked = NIOLockedValueBox(0)
        let pages = Pages(.offset(pageSize: 1)) { _ in
            asked.withLockedValue { $0 += 1 }
            return Page([0])
        }
        for try await _ in pages.prefix(3) {}
        #expect(asked.withLockedValue { $0 } == 3)
    }
}
