// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport

@testable import HHSocketSTOMP

/// A broker's end of one connection, with the network in between.
final class SimulatedBrokerConnection: SimulatedRemote {
    enum End {
        case fin
        /// A reset; `loses` is whether unread bytes are lost.
        case reset(loses: Bool)
    }

    let number: Int
    private(set) var channel: SimulatedChannel!
    private var decoder = STOMPDecoder(limits: STOMPLimits())
    private var version: STOMPVersion?
    private var generator: SeededGenerator
    /// Bytes that the kernel has taken, and that the broker has not read.
    private var incoming = ByteBuffer()
    /// Bytes that the client has not read.
    private var outgoing = ByteBuffer()
    private var end: End?
    /// Whether nothing passes, in either direction.
    var isCut = false
    /// Whether the broker reads.
    var isReading = true
    private(set) var isOver = false
    /// Whether the broker has ended it.
    private(set) var wasEnded = false
    /// The time at which the broker accepted the client.
    private(set) var acceptedAt: NIODeadline?
    /// The times at which the client last wrote a byte, and at which one was last delivered to it.
    private(set) var lastWritten: NIODeadline
    private(set) var lastDelivered: NIODeadline
    /// The interval in milliseconds at which the broker sends heart-beats; nil for never.
    var beatInterval: Int?
    /// The interval in milliseconds at which the broker expects the client's heart-beats.
    var expectedInterval: Int?
    var lastSent: NIODeadline
    private let loop: any EventLoop

    init(_ number: Int, _ loop: any EventLoop, now: NIODeadline, _ generator: SeededGenerator) {
        self.number = number
        self.loop = loop
        self.generator = generator
        self.lastWritten = now
        self.lastDelivered = now
        self.lastSent = now
        self.channel = SimulatedChannel(loop, self)
    }

    var now: NIODeadline { self.loop.now }

    // MARK: SimulatedRemote

    var room: Int { self.isCut ? 0 : max(0, 200_000 - self.incoming.readableBytes) }
    var breaksOnWrite: Bool { false }
    func clientWrote(_ bytes: ByteBuffer) { self.lastWritten = self.now }
    func kernelTook(_ bytes: ByteBuffer) { self.incoming.writeImmutableBuffer(bytes) }
    func clientEndedOutput() { self.end = self.end ?? .fin }
    func clientClosed() { self.isOver = true }
    func takeRest() -> ByteBuffer? {
        self.outgoing.readableBytes > 0 ? self.outgoing.readSlice(length: self.outgoing.readableBytes) : nil
    }

    // MARK: The broker

    func agree(on version: STOMPVersion) {
        self.version = version
        self.acceptedAt = self.now
        self.decoder.agree(on: version)
    }

    func send(_ frame: STOMPFrame) throws {
        guard self.end == nil, !self.isOver else { return }
        self.lastSent = self.now
        try STOMPEncoder.encode(frame, version: self.version, into: &self.outgoing)
        // Like RabbitMQ.
        if self.number % 2 == 0 { self.outgoing.writeInteger(STOMPEncoder.endOfLine) }
    }

    func sendBeat() {
        guard self.end == nil, !self.isOver else { return }
        self.lastSent = self.now
        self.outgoing.writeInteger(STOMPEncoder.endOfLine)
    }

    /// Ends TCP, after the sent bytes.
    func finish(_ end: End) {
        guard !self.isOver, self.end == nil else { return }
        self.end = end
        self.wasEnded = true
    }

    // MARK: The network

    /// Delivers pending bytes.
    ///
    /// - Returns: Whether there were any.
    func settle(_ receive: (STOMPFrame) -> Void) throws -> Bool {
        guard !self.isOver, !self.isCut else { return false }
        var hasMoved = try self.read(receive)
        if self.channel.bufferedBytes > 0, self.room > 0, self.channel.isActive {
            self.channel.becameWritable()
            hasMoved = self.incoming.readableBytes > 0 || hasMoved
        }
        if !self.isOver, self.channel.wantsRead, self.outgoing.readableBytes > 0 {
            self.lastDelivered = self.now
            self.channel.read(self.outgoing.readParts(using: &self.generator))
            hasMoved = true
        }
        guard !self.isOver, self.channel.isActive, let end = self.end.take() else { return hasMoved }
        switch end {
        case .fin: self.channel.end(self.takeRest())
        case .reset(let loses): self.channel.reset(loses ? nil : self.takeRest())
        }
        return true
    }

    /// Reads the bytes that the client sent before it closed the connection.
    func readRest(_ receive: (STOMPFrame) -> Void) throws {
        guard !self.isCut else { return }
        self.isReading = true
        while try self.read(receive) {}
    }

    private func read(_ receive: (STOMPFrame) -> Void) throws -> Bool {
        guard self.isReading, self.incoming.readableBytes > 0 else { return false }
        let length = Int.random(in: 1...self.incoming.readableBytes, using: &self.generator)
        if let bytes = self.incoming.readSlice(length: length) { self.decoder.append(bytes) }
        while let frame = try self.decoder.next() { receive(frame) }
        return true
    }
}
