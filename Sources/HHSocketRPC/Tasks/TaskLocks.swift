// SPDX-License-Identifier: Apache-2.0
import HHSocketSystem

/// The striped locks of a client's tasks, so that a task need not allocate one. Two tasks with the same lock contend
/// only while one of them accesses a few words.
final class TaskLocks: @unchecked Sendable {
    // Proof of Sendable: the pointer never changes, and the locks that it points to are made for many threads.
    #if canImport(Darwin)
    fileprivate typealias Lock = os_unfair_lock_s
    #else
    fileprivate typealias Lock = pthread_mutex_t
    #endif

    /// The number of locks, a power of two.
    private static let count = 64
    /// The distance between locks, in bytes: each has its own cache line, where that is 64 bytes.
    private static let stride = max(64, MemoryLayout<Lock>.stride)

    private let memory: UnsafeMutableRawPointer

    init() {
        self.memory = .allocate(byteCount: Self.count * Self.stride, alignment: 64)
        for number in 0..<Self.count {
            let lock = self.memory.advanced(by: number * Self.stride).bindMemory(to: Lock.self, capacity: 1)
            #if canImport(Darwin)
            lock.initialize(to: Lock())
            #else
            let error = pthread_mutex_init(lock, nil)
            precondition(error == 0, "no mutex can be made: error \(error)")
            #endif
        }
    }

    deinit {
        #if !canImport(Darwin)
        for number in 0..<Self.count { pthread_mutex_destroy(self.lock(number)) }
        #endif
        self.memory.deallocate()
    }

    private func lock(_ number: Int) -> UnsafeMutablePointer<Lock> {
        (self.memory + (number & (Self.count - 1)) * Self.stride).assumingMemoryBound(to: Lock.self)
    }

    /// Returns the lock of the task with this identifier. The task must keep this object.
    func lock(ofTask identifier: Int) -> TaskLock { TaskLock(self.lock(identifier)) }

    /// One stripe. Code that holds it must not take another lock or block.
    struct TaskLock: @unchecked Sendable {
        // Proof of Sendable: as above.
        private let lock: UnsafeMutablePointer<Lock>

        fileprivate init(_ lock: UnsafeMutablePointer<Lock>) {
            self.lock = lock
        }

        @inline(__always)
        func with<T>(_ body: () -> T) -> T {
            #if canImport(Darwin)
            os_unfair_lock_lock(self.lock)
            defer { os_unfair_lock_unlock(self.lock) }
            #else
            pthread_mutex_lock(self.lock)
            defer { pthread_mutex_unlock(self.lock) }
            #endif
            return body()
        }
    }
}
