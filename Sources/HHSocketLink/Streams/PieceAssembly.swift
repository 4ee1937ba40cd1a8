// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// A payload of which pieces have arrived, but not the last one.
struct PieceAssembly: Sendable {
    /// The type of its frames with their flags, but ``FrameType/continuesFlag``.
    let type: UInt32
    let status: Status
    /// Its bytes so far.
    private(set) var bytes: OwnedBytes
    /// The cost of its frames so far.
    private(set) var cost: UInt64

    /// The memory that an incomplete payload costs in addition to its bytes: a place in a table that is half empty, and
    /// the headers of allocations.
    static let overhead: UInt64 = 256
    /// The memory that it costs, in bytes.
    var memory: UInt64 { UInt64(self.bytes.charge) + Self.overhead }

    /// - Parameter first: The first piece.
    init(_ first: borrowing ArrivedFrame) {
        self.type = first.type & ~FrameType.continuesFlag
        self.status = first.status
        self.bytes = OwnedBytes(gathering: first.payload)
        self.cost = StreamFrames.cost(first.length)
    }

    /// Whether a frame can be the next piece.
    func matches(_ frame: borrowing ArrivedFrame) -> Bool {
        frame.type & ~FrameType.continuesFlag == self.type && frame.status == self.status
    }

    /// Whether it stays within a limit with this number of bytes more.
    func fits(_ length: Int, limit: Int) -> Bool { length <= limit - self.bytes.count }

    mutating func append(_ frame: borrowing ArrivedFrame) {
        self.cost = self.cost.adding(StreamFrames.cost(frame.length))
        self.bytes.append(frame.payload)
    }
}

/// Payloads in pieces that belong to no open stream, by serial: requests, answers, pushes.
struct PayloadAssembler: Sendable {
    private enum Payload: Sendable {
        case gathering(PieceAssembly)
        /// It has failed, and its remaining pieces are dropped.
        case swallowing
    }

    /// The result of a piece.
    enum Progress: Sendable {
        /// More pieces follow, or this one was discarded.
        case more
        case whole(Frame)
        case failed(PayloadFailure)
        /// There are too many payloads.
        case overflow
    }

    private var payloads: [UInt32: Payload] = [:]
    /// The longest payload, in bytes.
    var maximumLength: Int
    private let maximumCount: Int
    /// The cost of the pieces that are gathered, and a constant for each payload.
    private(set) var heldBytes: UInt64 = 0
    /// The memory of the pieces that are gathered.
    private var gatheredMemory: UInt64 = 0
    private var gatheringCount = 0
    /// The memory of all payloads, those that are discarded included, in bytes.
    var memory: UInt64 {
        self.gatheredMemory + UInt64(self.payloads.count - self.gatheringCount) * PieceAssembly.overhead
    }

    /// The number of bytes that an incomplete payload counts in addition to its pieces.
    static let overhead: UInt64 = 128

    /// - Parameters:
    ///   - maximumLength: The longest payload, in bytes.
    ///   - maximumCount: The number of payloads that may be incomplete at a time. The same number may be discarded.
    init(maximumLength: Int, maximumCount: Int) {
        self.maximumLength = maximumLength
        self.maximumCount = maximumCount
    }

    var count: Int { self.payloads.count }
    /// Whether a piece of a payload is awaited, even if it will be dropped.
    var isEmpty: Bool { self.payloads.isEmpty }
    /// Whether a payload is being gathered.
    var isGathering: Bool { self.gatheringCount > 0 }

    /// The number of received bytes of an incomplete payload.
    func gatheredBytes(_ serial: UInt32) -> Int {
        guard !self.payloads.isEmpty, case .gathering(let assembly)? = self.payloads[serial] else { return 0 }
        return assembly.bytes.count
    }

    func has(_ serial: UInt32) -> Bool { !self.payloads.isEmpty && self.payloads[serial] != nil }

    /// Handles a frame that is a piece, or whose serial has one.
    ///
    /// - Parameter limit: The largest number of bytes that may be held.
    mutating func receive(_ frame: borrowing ArrivedFrame, isDamaged: Bool, limit: UInt64) -> Progress {
        let continues = frame.type & FrameType.continuesFlag != 0
        // Removed, so that its bytes are not copied.
        switch self.payloads.removeValue(forKey: frame.serial) {
        case .swallowing:
            if continues { self.payloads[frame.serial] = .swallowing }
            return .more
        case .gathering(var assembly):
            self.uncount(assembly)
            if let failure = self.failure(frame, assembly, isDamaged: isDamaged, limit: limit) {
                return self.fail(frame.serial, failure, continues: continues)
            }
            assembly.append(frame)
            guard continues else {
                return .whole(
                    Frame(
                        type: assembly.type,
                        serial: frame.serial,
                        status: frame.status,
                        payload: assembly.bytes.buffer
                    )
                )
            }
            self.insert(frame.serial, assembly)
            return .more
        case nil:
            if let failure = self.failure(frame, nil, isDamaged: isDamaged, limit: limit) {
                return self.fail(frame.serial, failure, continues: continues)
            }
            guard continues else { return .whole(frame.kept()) }
            self.insert(frame.serial, PieceAssembly(frame))
            return .more
        }
    }

    private func failure(
        _ frame: borrowing ArrivedFrame,
        _ assembly: PieceAssembly?,
        isDamaged: Bool,
        limit: UInt64
    ) -> PayloadFailure? {
        if isDamaged { return .damaged }
        if let assembly {
            guard assembly.matches(frame) else { return .differentPieces }
            guard assembly.fits(frame.length, limit: self.maximumLength) else { return .tooLong }
        } else {
            guard frame.length <= self.maximumLength else { return .tooLong }
            guard self.gatheringCount < self.maximumCount else { return .tooMuchHeld }
        }
        let held = self.heldBytes + (assembly?.cost ?? 0) + Self.overhead
        return held.adding(StreamFrames.cost(frame.length)) > limit ? .tooMuchHeld : nil
    }

    private mutating func fail(_ serial: UInt32, _ failure: PayloadFailure, continues: Bool) -> Progress {
        guard continues else { return .failed(failure) }
        guard self.payloads.count - self.gatheringCount < self.maximumCount else { return .overflow }
        self.payloads[serial] = .swallowing
        return .failed(failure)
    }

    private mutating func insert(_ serial: UInt32, _ assembly: PieceAssembly) {
        self.heldBytes += assembly.cost + Self.overhead
        self.gatheredMemory += assembly.memory
        self.gatheringCount += 1
        self.payloads[serial] = .gathering(assembly)
    }

    private mutating func uncount(_ assembly: PieceAssembly) {
        self.heldBytes -= assembly.cost + Self.overhead
        self.gatheredMemory -= assembly.memory
        self.gatheringCount -= 1
    }

    /// Forgets a payload, which was cancelled.
    ///
    /// - Returns: Whether it was being gathered.
    @discardableResult
    mutating func forget(_ serial: UInt32) -> Bool {
        guard !self.payloads.isEmpty, case .gathering(let assembly)? = self.payloads.removeValue(forKey: serial) else {
            return false
        }
        self.uncount(assembly)
        return true
    }

    mutating func removeAll() {
        self.payloads = [:]
        self.heldBytes = 0
        self.gatheredMemory = 0
        self.gatheringCount = 0
    }
}
