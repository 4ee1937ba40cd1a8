// SPDX-License-Identifier: Apache-2.0
import Atomics
import Foundation
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// The state of a task, which sending its request changes without the lock.
@Suite struct TaskWordTests {
    @Test(arguments: [SocketTask.State.suspended, .running, .canceling, .completed])
    func aStateKeepsTheMarks(_ state: SocketTask.State) {
        var word = TaskWord(.running, isSentWhole: true)
        word.hasProgress = true
        let changed = word.with(state)
        #expect(changed.state == state)
        #expect(changed.hasProgress && changed.isSentWhole)
        word.hasProgress = false
        word.isSentWhole = false
        #expect(word == TaskWord(.running))
        #expect(TaskWord(state).state == state)
    }

    @Test func anUpdateMayDecline() {
        let word = UnsafeAtomic<TaskWord>.create(.suspended)
        defer { word.destroy() }
        #expect(!word.update { $0.state == .running ? $0.with(.canceling) : nil })
        #expect(word.update { $0.state == .suspended ? $0.with(.canceling) : nil })
        #expect(word.load(ordering: .relaxed) == TaskWord(.canceling))
    }
}

/// Tasks that are sent while other threads read, observe and cancel them.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TaskDepartureTests {
    @Test func otherThreadsMeetADeparture() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.callingBackInline(to: server)
        try await client.connected()
        let count = 300
        let completions = NIOLockedValueBox([Int](repeating: 0, count: count))
        let tasks = (0..<count).map { number in
            client.dataTask(with: SocketRequest(type: 101, body: "body \(number)")) { _ in
                completions.withLockedValue { $0[number] += 1 }
            }
        }
        let loop = client.host.loop.eventLoop
        await withTaskGroup(of: Void.self) { group in
            // On the thread of handlers, so that requests are sent without the lock.
            group.addTask {
                for task in tasks {
                    try? await loop.submit { client.host.loop.enter { $0.run(Resumption(task)) } }.get()
                }
            }
            group.addTask { for task in tasks { _ = (task.state, task.countOfBytesSent) } }
            group.addTask { for task in tasks where task.taskIdentifier % 3 == 0 { _ = task.progress } }
            group.addTask { for task in tasks where task.taskIdentifier % 5 == 0 { task.cancel() } }
        }
        try await eventually("all completions") { completions.withLockedValue { $0.allSatisfy { $0 > 0 } } }
        #expect(completions.withLockedValue { $0.allSatisfy { $0 == 1 } })
        for task in tasks {
            #expect(task.state == .completed)
            guard task.response != nil else {
                #expect(task.error?.code == .cancelled)
                continue
            }
            #expect(task.countOfBytesSent == task.countOfBytesExpectedToSend)
            #expect(task.countOfBytesReceived == task.countOfBytesExpectedToSend)
        }
        await client.close()
    }

    /// Resumes a task in a handler.
    private struct Resumption: TurnHandler {
        let task: SocketTask

        init(_ task: SocketTask) {
            self.task = task
        }

        static func run(at pointer: UnsafeMutableRawPointer) {
            pointer.takeHandler(Self.self).task.resume()
        }
    }
}
