import NIOCore
import NIOPosix

/// Opens connections, and lets go of those that nobody wants any more. Lives on the socket thread.
final class Dialer: @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable themselves, but for the traffic; that and the variables are touched on
    // the event loop alone.
    private let eventLoop: any EventLoop
    private let configuration: SocketConfiguration
    /// The custom fields of every frame that brings none.
    private let customFields: Result<[UInt8]?, SocketError>
    private let traffic: Traffic
    /// The channels of the attempts in progress: name resolution may lead to several each.
    private var channels: [ConnectionID: [any Channel]] = [:]
    /// Attempts whose future is still to come, abandoned ones included.
    private var unfinished = 0
    private var finishedPromise: EventLoopPromise<Void>?

    init(
        eventLoop: any EventLoop,
        configuration: SocketConfiguration,
        customFields: Result<[UInt8]?, SocketError>,
        traffic: Traffic
    ) {
        self.eventLoop = eventLoop
        self.configuration = configuration
        self.customFields = customFields
        self.traffic = traffic
    }

    /// Opens a connection. `completion` is called once, on the socket thread and after this method has returned; never once
    /// the attempt is abandoned.
    func dial(
        _ id: ConnectionID,
        _ endpoint: Endpoint,
        owner: any Link.Owner & Sendable,
        completion: @escaping @Sendable (Result<Link, SocketError>) -> Void
    ) {
        let customFields: [UInt8]?
        do throws(SocketError) {
            customFields = try self.check(endpoint)
        } catch {
            self.channels[id] = []
            self.eventLoop.execute {
                if self.channels.removeValue(forKey: id) != nil { completion(.failure(error)) }
            }
            return
        }
        let configuration = self.configuration
        self.channels[id] = []
        self.unfinished += 1
        ClientBootstrap(group: self.eventLoop)
            .connectTimeout(max(.milliseconds(1), TimeAmount(configuration.connectTimeout)))
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelOption(.writeBufferWaterMark, value: Link.channelWaterMarks)
            .channelOption(
                .recvAllocator,
                value: AdaptiveRecvByteBufferAllocator(minimum: 2 << 10, initial: 16 << 10, maximum: 256 << 10)
            )
            .channelInitializer { [weak owner] channel in
                channel.eventLoop.makeCompletedFuture {
                    guard let owner, self.channels[id] != nil else { throw CancellationError() }
                    self.channels[id]?.append(channel)
                    try channel.pipeline.syncOperations.addHandler(
                        Link(
                            id: id,
                            endpoint: endpoint,
                            configuration: configuration,
                            customFields: customFields,
                            traffic: self.traffic,
                            owner: owner
                        )
                    )
                }
            }
            .connect(host: endpoint.host, port: endpoint.port)
            .whenComplete { self.finished(id, endpoint, $0, completion) }
    }

    private func check(_ endpoint: Endpoint) throws(SocketError) -> [UInt8]? {
        guard (1...65_535).contains(endpoint.port), !endpoint.host.isEmpty else {
            throw SocketError(
                .invalidArgument,
                message: "cannot connect to \(endpoint): a host and a port from 1 to 65535 are needed",
                endpoint: endpoint
            )
        }
        do throws(SocketError) {
            return try self.customFields.get()
        } catch {
            var error = error
            error.endpoint = endpoint
            throw error
        }
    }

    private func finished(
        _ id: ConnectionID,
        _ endpoint: Endpoint,
        _ result: Result<any Channel, any Error>,
        _ completion: (Result<Link, SocketError>) -> Void
    ) {
        let isWanted = self.channels.removeValue(forKey: id) != nil
        self.unfinished -= 1
        switch result.flatMap({ channel in Result { try channel.pipeline.syncOperations.handler(type: Link.self) } }) {
        case .success(let link) where isWanted:
            completion(.success(link))
        case .success(let link):
            link.close()
        case .failure(let error):
            let timeout = self.configuration.connectTimeout
            if isWanted {
                completion(.failure(.connecting(to: endpoint, failedWith: error, timeout: timeout)))
            }
        }
        if self.unfinished == 0 { self.finishedPromise?.succeed() }
    }

    /// Gives up an attempt that is in progress. False if there is none of this name.
    func abandon(_ id: ConnectionID) -> Bool {
        guard let channels = self.channels.removeValue(forKey: id) else { return false }
        for channel in channels { channel.close(promise: nil) }
        return true
    }

    /// Completes when no attempt is in progress any more, abandoned ones included: a thread that ended before could never be
    /// told the result of a name's resolution. To be called once, and no attempt is begun after it.
    func whenFinished() -> EventLoopFuture<Void> {
        let promise = self.eventLoop.makePromise(of: Void.self)
        self.finishedPromise = promise
        if self.unfinished == 0 { promise.succeed() }
        return promise.futureResult
    }
}
