// SPDX-License-Identifier: Apache-2.0
import Foundation
package import HHSocket
package import NIOCore

/// The server's end of a simulated connection, as the channel sees it.
package protocol SimulatedRemote: AnyObject {
    /// The number of bytes that the kernels currently accept.
    var room: Int { get }
    /// Whether the next write fails without an earlier notification.
    var breaksOnWrite: Bool { get }
    /// The client has written these bytes, and may not have flushed them.
    func clientWrote(_ bytes: ByteBuffer)
    /// The kernel has taken these bytes.
    func kernelTook(_ bytes: ByteBuffer)
    /// The client has ended its direction.
    func clientEndedOutput()
    /// The channel has closed.
    func clientClosed()
    /// Takes the remaining bytes to read, once nothing more can be written.
    func takeRest() -> ByteBuffer?
}

/// A client's end of a TCP connection in virtual time. It behaves like NIO's channels: it buffers the bytes that the
/// kernel does not take, reads only on request, and reads all remaining bytes when the peer has ended.
package final class SimulatedChannel: Channel, ChannelCore, @unchecked Sendable {
    // Proof of Sendable: a history runs on one thread.
    private struct Write {
        var bytes: ByteBuffer
        var promise: EventLoopPromise<Void>?
    }

    package struct Options: NIOSynchronousChannelOptions {
        fileprivate let channel: SimulatedChannel

        package func setOption<Option: ChannelOption>(_ option: Option, value: Option.Value) throws {
            try self.channel.set(option, value)
        }

        package func getOption<Option: ChannelOption>(_ option: Option) throws -> Option.Value {
            try self.channel.get(option)
        }
    }

    package let allocator = ByteBufferAllocator()
    package let eventLoop: any EventLoop
    package let localAddress: SocketAddress? = nil
    package let remoteAddress: SocketAddress? = nil
    package let parent: (any Channel)? = nil
    private let closePromise: EventLoopPromise<Void>
    private unowned let remote: any SimulatedRemote
    // Set in `init`, since it requires the channel.
    private var innerPipeline: ChannelPipeline!

    package private(set) var isOpen = true
    package private(set) var isActive = false
    package private(set) var isWritable = true
    package private(set) var isAutoReading = true
    /// Whether the pipeline has requested bytes and has not received any.
    package private(set) var wantsRead = false
    private var writes = CircularBuffer<Write>()
    /// The number of flushed writes.
    private var flushedCount = 0
    package private(set) var bufferedBytes = 0
    private var isFlushing = false
    private var outputIsClosed = false
    private var outputPromise: EventLoopPromise<Void>?
    private var closesOutput = false
    private let waterMarks = LinkChannel.waterMarks

    package init(_ eventLoop: any EventLoop, _ remote: any SimulatedRemote) {
        self.eventLoop = eventLoop
        self.closePromise = eventLoop.makePromise()
        self.remote = remote
        self.innerPipeline = ChannelPipeline(channel: self)
    }

    package var pipeline: ChannelPipeline { self.innerPipeline }
    package var closeFuture: EventLoopFuture<Void> { self.closePromise.futureResult }
    package var _channelCore: any ChannelCore { self }
    package var syncOptions: (any NIOSynchronousChannelOptions)? { Options(channel: self) }

    // MARK: What the network does

    /// Makes the connection, and calls `notify` to notify the requester.
    package func activate(_ notify: () -> Void) {
        self.isActive = true
        notify()
        self.pipeline.syncOperations.fireChannelActive()
        self.readIfNeeded()
    }

    /// Delivers the bytes of one read, in parts.
    package func read(_ parts: [ByteBuffer]) {
        self.wantsRead = false
        for part in parts where self.isActive { self.pipeline.syncOperations.fireChannelRead(NIOAny(part)) }
        if self.isActive { self.pipeline.syncOperations.fireChannelReadComplete() }
        self.readIfNeeded()
    }

    /// The peer has ended its direction after `rest`, which NIO reads even without a request.
    package func end(_ rest: ByteBuffer?) {
        if let rest, self.isActive { self.read([rest]) }
        guard self.isActive else { return }
        self.pipeline.syncOperations.fireChannelReadComplete()
        self.close0(error: ChannelError.eof, mode: .all, promise: nil)
    }

    /// The connection was reset.
    package func reset(_ rest: ByteBuffer?) {
        if let rest, self.isActive { self.read([rest]) }
        guard self.isActive else { return }
        let error = IOError(errnoCode: 104, reason: "read")
        self.pipeline.syncOperations.fireErrorCaught(error)
        self.close0(error: error, mode: .all, promise: nil)
    }

    /// The kernel has room again.
    package func becameWritable() { self.flushNow() }

    private func readIfNeeded() {
        if self.isActive, self.isAutoReading, !self.wantsRead { self.pipeline.syncOperations.read() }
    }

    // MARK: Options

    package func setOption<Option: ChannelOption>(_ option: Option, value: Option.Value) -> EventLoopFuture<Void> {
        self.eventLoop.makeCompletedFuture { try self.set(option, value) }
    }

    package func getOption<Option: ChannelOption>(_ option: Option) -> EventLoopFuture<Option.Value> {
        self.eventLoop.makeCompletedFuture { try self.get(option) }
    }

    private func set<Option: ChannelOption>(_ option: Option, _ value: Option.Value) throws {
        guard self.isOpen else { throw ChannelError.ioOnClosedChannel }
        guard option is ChannelOptions.Types.AutoReadOption, let isOn = value as? Bool else {
            throw ChannelError.operationUnsupported
        }
        guard isOn != self.isAutoReading else { return }
        self.isAutoReading = isOn
        self.wantsRead = isOn
    }

    private func get<Option: ChannelOption>(_ option: Option) throws -> Option.Value {
        guard self.isOpen else { throw ChannelError.ioOnClosedChannel }
        let value: Any =
            switch option {
            case is ChannelOptions.Types.AutoReadOption: self.isAutoReading
            case is ChannelOptions.Types.BufferedWritableBytesOption: self.bufferedBytes
            default: throw ChannelError.operationUnsupported
            }
        guard let value = value as? Option.Value else { throw ChannelError.operationUnsupported }
        return value
    }

    // MARK: What the pipeline asks for

    package func localAddress0() throws -> SocketAddress { throw ChannelError.operationUnsupported }
    package func remoteAddress0() throws -> SocketAddress { throw ChannelError.operationUnsupported }

    package func register0(promise: EventLoopPromise<Void>?) {
        promise?.succeed()
        self.pipeline.syncOperations.fireChannelRegistered()
    }

    package func registerAlreadyConfigured0(promise: EventLoopPromise<Void>?) { self.register0(promise: promise) }

    package func bind0(to address: SocketAddress, promise: EventLoopPromise<Void>?) {
        promise?.fail(ChannelError.operationUnsupported)
    }

    package func connect0(to address: SocketAddress, promise: EventLoopPromise<Void>?) {
        promise?.fail(ChannelError.operationUnsupported)
    }

    package func read0() { self.wantsRead = true }

    package func write0(_ data: NIOAny, promise: EventLoopPromise<Void>?) {
        guard self.isOpen, !self.outputIsClosed else {
            promise?.fail(self.isOpen ? ChannelError.outputClosed : ChannelError.ioOnClosedChannel)
            return
        }
        let bytes = self.unwrapData(data, as: ByteBuffer.self)
        if bytes.readableBytes > 0 { self.remote.clientWrote(bytes) }
        self.writes.append(Write(bytes: bytes, promise: promise))
        self.bufferedBytes += bytes.readableBytes
        if self.isWritable, self.bufferedBytes > self.waterMarks.high {
            self.isWritable = false
            self.pipeline.syncOperations.fireChannelWritabilityChanged()
        }
    }

    package func flush0() {
        guard self.isOpen else { return }
        self.flushedCount = self.writes.count
        self.flushNow()
    }

    /// Gives the kernel as many bytes as it takes. The running call also handles writes that are made meanwhile.
    private func flushNow() {
        guard self.isActive, !self.isFlushing else { return }
        self.isFlushing = true
        defer { self.isFlushing = false }
        while self.isOpen, self.flushedCount > 0, let first = self.writes.first {
            guard first.bytes.readableBytes > 0 else {
                self.dropFirst()
                continue
            }
            if self.remote.breaksOnWrite { return self.breakOff() }
            var rest = first.bytes
            guard let taken = rest.readSlice(length: min(self.remote.room, rest.readableBytes)),
                taken.readableBytes > 0
            else { return }
            self.writes[self.writes.startIndex].bytes = rest
            self.remote.kernelTook(taken)
            self.bufferedBytes -= taken.readableBytes
            if rest.readableBytes == 0 { self.dropFirst() }
            if !self.isWritable, self.bufferedBytes < self.waterMarks.low {
                self.isWritable = true
                self.pipeline.syncOperations.fireChannelWritabilityChanged()
            }
        }
        if self.isOpen, self.writes.isEmpty, self.closesOutput { self.endOutput() }
    }

    private func dropFirst() {
        self.flushedCount -= 1
        self.writes.popFirst()?.promise?.succeed()
    }

    /// A write fails: bytes that the peer has sent before are read nevertheless.
    private func breakOff() {
        self.readIfNeeded()
        if self.wantsRead, let rest = self.remote.takeRest() {
            self.pipeline.syncOperations.fireChannelRead(NIOAny(rest))
            if self.isActive { self.pipeline.syncOperations.fireChannelReadComplete() }
        }
        self.close0(error: IOError(errnoCode: 32, reason: "write"), mode: .all, promise: nil)
    }

    private func endOutput() {
        self.closesOutput = false
        self.outputIsClosed = true
        self.remote.clientEndedOutput()
        self.outputPromise?.succeed()
        self.outputPromise = nil
        self.pipeline.fireUserInboundEventTriggered(ChannelEvent.outputClosed)
    }

    package func close0(error: any Error, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        guard self.isOpen else {
            promise?.fail(ChannelError.alreadyClosed)
            return
        }
        switch mode {
        case .input:
            promise?.fail(ChannelError.operationUnsupported)
        case .output:
            guard !self.outputIsClosed, !self.closesOutput else {
                promise?.fail(ChannelError.outputClosed)
                return
            }
            self.outputPromise = promise
            self.closesOutput = true
            if self.writes.isEmpty { self.endOutput() }
        case .all:
            self.close(error, promise)
        }
    }

    private func close(_ error: any Error, _ promise: EventLoopPromise<Void>?) {
        let wasActive = self.isActive
        self.isOpen = false
        self.isActive = false
        let lost = self.writes
        self.writes = CircularBuffer()
        self.flushedCount = 0
        self.bufferedBytes = 0
        for write in lost { write.promise?.fail(error) }
        self.outputPromise?.fail(error)
        self.outputPromise = nil
        self.remote.clientClosed()
        promise?.succeed()
        if wasActive { self.pipeline.syncOperations.fireChannelInactive() }
        self.pipeline.syncOperations.fireChannelUnregistered()
        self.eventLoop.execute {
            self.removeHandlers(pipeline: self.pipeline)
            self.closePromise.succeed()
        }
    }

    package func triggerUserOutboundEvent0(_ event: Any, promise: EventLoopPromise<Void>?) {
        promise?.fail(ChannelError.operationUnsupported)
    }

    package func channelRead0(_ data: NIOAny) {}
    package func errorCaught0(error: any Error) {}
}

extension DriverWorld {
    /// A world on this thread in virtual time.
    ///
    /// - Parameters:
    ///   - loop: Its clock.
    ///   - open: Opens a connection to a host.
    package static func simulated(
        on loop: any EventLoop,
        random: @escaping @Sendable () -> UInt64,
        open: @escaping @Sendable (_ host: String, SimulatedBootstrap.Initializer) -> EventLoopFuture<any Channel>
    ) -> DriverWorld {
        let thread = Int(bitPattern: pthread_self())
        return DriverWorld(
            thread: LoopThread(
                isCurrent: { thread == Int(bitPattern: pthread_self()) },
                wake: { loop.execute($0) },
                now: { loop.now }
            ),
            makeBootstrap: { SimulatedBootstrap { host, _, initializer in open(host, initializer) } },
            lookUp: { host, _ in loop.makeSucceededFuture([host]) },
            random: random
        )
    }
}

extension ByteBuffer {
    /// Takes the bytes of one read of a network, in up to three parts.
    package mutating func readParts(using generator: inout SeededGenerator) -> [ByteBuffer] {
        var parts: [ByteBuffer] = []
        let isPatchy = Int.random(in: 0..<4, using: &generator) == 0
        while parts.count < 3, self.readableBytes > 0 {
            let most = min(self.readableBytes, 65_536)
            let length = isPatchy ? Int.random(in: 1...most, using: &generator) : most
            if let part = self.readSlice(length: length) { parts.append(part) }
        }
        return parts
    }
}

/// Opens simulated connections, where NIO's own opens sockets.
package struct SimulatedBootstrap: NIOClientTCPBootstrapProtocol {
    package typealias Initializer = @Sendable (any Channel) -> EventLoopFuture<Void>

    private let open: (String, Int, Initializer) -> EventLoopFuture<any Channel>
    private var initializer: Initializer = { $0.eventLoop.makeSucceededVoidFuture() }

    package init(_ open: @escaping (String, Int, Initializer) -> EventLoopFuture<any Channel>) {
        self.open = open
    }

    package func channelInitializer(_ handler: @escaping Initializer) -> Self {
        var copy = self
        copy.initializer = handler
        return copy
    }

    package func connect(host: String, port: Int) -> EventLoopFuture<any Channel> {
        self.open(host, port, self.initializer)
    }

    package func connect(to address: SocketAddress) -> EventLoopFuture<any Channel> {
        self.open("", 0, self.initializer)
    }

    package func connect(unixDomainSocketPath: String) -> EventLoopFuture<any Channel> {
        self.open(unixDomainSocketPath, 0, self.initializer)
    }

    package func protocolHandlers(_ handlers: @escaping @Sendable () -> [any ChannelHandler]) -> Self { self }
    package func channelOption<Option: ChannelOption>(_ option: Option, value: Option.Value) -> Self { self }
    package func connectTimeout(_ timeout: TimeAmount) -> Self { self }
    package func _applyChannelConvenienceOptions(_ options: inout ChannelOptions.TCPConvenienceOptions) -> Self { self }
}
