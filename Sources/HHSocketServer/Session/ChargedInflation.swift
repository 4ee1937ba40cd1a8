// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// Decompresses the bodies that clients send, in parts, between which other tasks may use the thread. Decompressed
/// bytes count as held immediately, and decompression stops when too much is held.
enum ChargedInflation {
    enum Failure: Error, Hashable {
        /// Too much is held.
        case overload
        /// The request was cancelled, so the work is unnecessary.
        case cancelled
        case tooLong, malformed

        /// The status that the client is answered with.
        var status: Status {
            switch self {
            case .overload, .cancelled: .overloaded
            case .tooLong: .illegalLength
            case .malformed: .illegalFormat
            }
        }
    }

    /// A decompressed body with its charge.
    final class Body: Sendable {
        let bytes: ByteBuffer
        private let hold: Hold

        fileprivate init(_ bytes: ByteBuffer, _ hold: consuming Hold) {
            self.bytes = bytes
            self.hold = hold
        }
    }

    /// The number of bytes that are decompressed before other tasks may use the thread.
    static let bytesAtOnce = 256 << 10

    /// Decompresses a body.
    ///
    /// - Parameter limit: The largest size of the result, in bytes.
    static func inflate(
        _ body: ByteBuffer,
        limit: Int,
        chargedTo load: LedgerAccount
    ) async throws(Failure) -> Body {
        var inflater = BodyInflater(body, limit: limit)
        var hold = Hold(.memory(0), of: load)
        while true {
            guard !Task.isCancelled else { throw .cancelled }
            guard !load.isFull else { throw .overload }
            let whole: ByteBuffer?
            do throws(EnvelopeError) {
                whole = try inflater.next(Self.bytesAtOnce)
            } catch {
                throw error.isTooLarge ? Failure.tooLong : Failure.malformed
            }
            hold.change(to: whole?.storageCapacity ?? inflater.length)
            if let whole {
                guard !load.isFull else { throw .overload }
                return Body(whole, hold)
            }
            await Task.yield()
        }
    }
}

extension HandlerExecutor {
    /// Runs `body`, which is slow, on the thread pool if the current thread is the connection's.
    func elsewhere<Value: Sendable, Failure>(
        _ body: @Sendable () async throws(Failure) -> Value
    ) async throws(Failure) -> Value {
        guard self == .connection, #available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
        else {
            return try await body()
        }
        return try await withTaskExecutorPreference(globalConcurrentExecutor) {
            () async throws(Failure) in
            try await body()
        }
    }
}
