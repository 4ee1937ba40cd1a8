// SPDX-License-Identifier: Apache-2.0
import HHSocketServer
import HHSocketTransferValues
import NIOConcurrencyHelpers
import TestSupport
import Testing

@testable import HHSocketServerTransfers

/// The lock of each key: histories of tasks that take one step at a time, as a model has them, and many threads.
@Suite(.timeLimit(.minutes(5))) struct KeyedLockTests {
    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func randomHistoriesAreThoseOfTheModel() async {
        let broken = await onItsOwnThread { LockWorld.firstBroken(of: scaled(300)) { KeyedLock<LockKey>() } }
        #expect(broken == nil)
    }

    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test(arguments: LockFlaw.allCases)
    func flawsAreFound(_ flaw: LockFlaw) async {
        let broken = await onItsOwnThread { LockWorld.firstBroken(of: 50) { FlawedLock(flaw) } }
        #expect(broken != nil, "\(flaw) is not found")
    }

    @Test func bodiesOfOneKeyNeverOverlapOnManyThreads() async {
        let (lock, inside) = (KeyedLock<Int>(), NIOLockedValueBox<Set<Int>>([]))
        await withTaskGroup(of: Void.self) { group in
            for number in 0..<60 {
                group.addTask {
                    let key = number % 3
                    for _ in 0..<scaled(50) {
                        await lock.lock(key)
                        let isAlone = inside.withLockedValue { $0.insert(key).inserted }
                        #expect(isAlone)
                        await Task.yield()
                        inside.withLockedValue { _ = $0.remove(key) }
                        lock.unlock(key)
                    }
                }
            }
        }
    }
}

private protocol KeyLocking: Sendable {
    func lock(_ key: LockKey) async
    func unlock(_ key: LockKey)
}

extension KeyedLock: KeyLocking where Key == LockKey {}

/// A key that is counted while it exists.
private final class LockKey: Hashable, Sendable {
    let number: Int
    private let census: NIOLockedValueBox<Int>

    init(_ number: Int, _ census: NIOLockedValueBox<Int>) {
        (self.number, self.census) = (number, census)
        census.withLockedValue { $0 += 1 }
    }

    deinit { self.census.withLockedValue { $0 -= 1 } }

    static func == (one: LockKey, other: LockKey) -> Bool { one.number == other.number }
    func hash(into hasher: inout Hasher) { hasher.combine(self.number) }
}

/// A mistake of a lock.
enum LockFlaw: CaseIterable {
    case doesNotLock, locksAllKeys, ignoresTheOrder, keepsKeys
}

private final class FlawedLock: KeyLocking {
    private let flaw: LockFlaw
    private let lines = NIOLockedValueBox<[Int: [UnsafeContinuation<Void, Never>]]>([:])
    private let kept = NIOLockedValueBox<[LockKey]>([])

    init(_ flaw: LockFlaw) { self.flaw = flaw }

    private func place(of key: LockKey) -> Int { self.flaw == .locksAllKeys ? 0 : key.number }

    func lock(_ key: LockKey) async {
        if self.flaw == .keepsKeys { self.kept.withLockedValue { $0.append(key) } }
        let place = self.place(of: key)
        await withUnsafeContinuation { (waiter: UnsafeContinuation<Void, Never>) in
            let waits = self.lines.withLockedValue { lines in
                let waits = lines[place] != nil && self.flaw != .doesNotLock
                lines[place, default: []] += waits ? [waiter] : []
                return waits
            }
            if !waits { waiter.resume() }
        }
    }

    func unlock(_ key: LockKey) {
        let place = self.place(of: key)
        let next: UnsafeContinuation<Void, Never>? = self.lines.withLockedValue { lines in
            if lines[place]?.isEmpty != false { lines[place] = nil }
            return self.flaw == .ignoresTheOrder ? lines[place]?.removeLast() : lines[place]?.removeFirst()
        }
        next?.resume()
    }
}

/// Runs the jobs of tasks when the test says so, on its thread.
@available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
private final class StepExecutor: TaskExecutor {
    private let jobs = NIOLockedValueBox<[UnownedJob]>([])

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        self.jobs.withLockedValue { $0.append(job) }
    }

    /// Returns when every task waits or has ended.
    func run() {
        while let job = self.jobs.withLockedValue({ $0.isEmpty ? nil : $0.removeFirst() }) {
            job.runSynchronously(on: self.asUnownedTaskExecutor())
        }
    }
}

/// Tasks that ask for the lock of one of three keys, and stay in their bodies until they are told to leave.
@available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
private enum LockWorld {
    static func firstBroken<Lock: KeyLocking>(of histories: Int, _ makeLock: () -> Lock) -> String? {
        for seed in 0..<UInt64(histories) {
            if let broken = Self.run(makeLock(), seed: seed) { return "seed \(seed): \(broken)" }
        }
        return nil
    }

    private static func run<Lock: KeyLocking>(_ lock: Lock, seed: UInt64) -> String? {
        var random = SeededGenerator(seed: seed)
        let (executor, census) = (StepExecutor(), NIOLockedValueBox(0))
        let bodies = NIOLockedValueBox<[Int: UnsafeContinuation<Void, Never>]>([:])
        func leave(_ task: Int) {
            bodies.withLockedValue { $0.removeValue(forKey: task) }?.resume()
            executor.run()
        }
        // The model: the tasks of each key, the first of which is in its body.
        var (lines, broken): ([[Int]], String?) = ([[], [], []], nil)
        for task in 0..<80 where broken == nil {
            let number = Int.random(in: 0..<3, using: &random)
            if lines[number].isEmpty || Bool.random(using: &random) {
                lines[number].append(task)
                _ = Task(executorPreference: executor) {
                    let key = LockKey(number, census)
                    await lock.lock(key)
                    await withUnsafeContinuation { (body: UnsafeContinuation<Void, Never>) in
                        bodies.withLockedValue { $0[task] = body }
                    }
                    lock.unlock(key)
                }
                executor.run()
            } else {
                leave(lines[number].removeFirst())
            }
            let (real, model) = (bodies.withLockedValue { $0.keys.sorted() }, lines.compactMap(\.first).sorted())
            if real != model { broken = "step \(task): in their bodies are \(real), and should be \(model)" }
        }
        // No task may stay suspended.
        while let task = bodies.withLockedValue({ $0.keys.first }) { leave(task) }
        let keys = census.withLockedValue { $0 }
        return broken ?? (keys == 0 ? nil : "\(keys) keys are kept")
    }
}
