// SPDX-License-Identifier: Apache-2.0
// What the sources use of swift-nio-transport-services, which is empty where there is no Network.framework.
public import Dispatch
public import NIOCore
public import Network

public final class NIOTSEventLoopGroup: EventLoopGroup, Sendable {
    public init(loopCount: Int = 1, defaultQoS: DispatchQoS = .default) {}
    public func next() -> any EventLoop { fatalError() }
    public func any() -> any EventLoop { fatalError() }
    public func makeIterator() -> EventLoopIterator { fatalError() }
    public func shutdownGracefully(queue: DispatchQueue, _ callback: @escaping @Sendable ((any Error)?) -> Void) {}
}

public final class NIOTSConnectionBootstrap: NIOClientTCPBootstrapProtocol, @unchecked Sendable {
    public init?(validatingGroup group: any EventLoopGroup) {}
    public func tcpOptions(_ options: NWProtocolTCP.Options) -> Self { self }
    public func channelInitializer(
        _ handler: @escaping @Sendable (any Channel) -> EventLoopFuture<Void>
    ) -> Self { self }
    public func protocolHandlers(_ handlers: @escaping @Sendable () -> [any ChannelHandler]) -> Self { self }
    public func channelOption<Option: ChannelOption>(_ option: Option, value: Option.Value) -> Self { self }
    public func connectTimeout(_ timeout: TimeAmount) -> Self { self }
    public func connect(host: String, port: Int) -> EventLoopFuture<any Channel> { fatalError() }
    public func connect(to address: SocketAddress) -> EventLoopFuture<any Channel> { fatalError() }
    public func connect(unixDomainSocketPath: String) -> EventLoopFuture<any Channel> { fatalError() }
}
