// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// Decompresses what clients send, in parts, between which other tasks may use the thread. What has been decompressed
/// counts as held from then on, and where too much is held there is no next part.
enum ChargedInflation {
    enum Failure: Error, Hashable {
        /// Too much is held.
        case overload
        /// Nobody waits for it: there is no need to do the work.
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

    /// The number of bytes that are decompressed before other tasks may use the thread.
    static let bytesAtOnce = 256 << 10

    /// Decompresses a body.
    ///
    /// - Parameter limit: The largest size of the result, in bytes.
    /// - Returns: The body. Its storage's capacity is charged, and the caller's to give back.
    static func inflate(
        _ body: ByteBuffer,
        limit: Int,
        chargedTo load: LedgerAccount
    ) async throws(Failure) -> ByteBuffer {
        var inflater = BodyInflater(body, limit: limit)
        var held = 0
        var isReady = false
        defer { if !isReady { load.held(-held) } }
        while true {
            guard !Task.isCancelled else { throw .cancelled }
            guard !load.isFull else { throw .overload }
            let whole: ByteBuffer?
            do throws(EnvelopeError) {
                whole = try inflater.next(Self.bytesAtOnce)
            } catch {
                throw error.isTooLarge ? Failure.tooLong : Failure.malformed
            }
            load.held(inflater.length - held)
            held = inflater.length
            if let whole {
                load.held(whole.storageCapacity - held)
                held = whole.storageCapacity
                guard !load.isFull else { throw .overload }
                isReady = true
                return whole
            }
            await Task.yield()
        }
    }
}

extension HandlerExecutor {
    /// Runs `body`, which takes its time, on the thread pool where this is the connection's thread.
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
