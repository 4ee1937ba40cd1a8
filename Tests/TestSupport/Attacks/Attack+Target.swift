// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting

extension HostileClient.Attack {
    /// The target of an attack, and the way to reach it.
    struct Target: Sendable {
        var endpoint: Endpoint
        var format: WireFormat
        var tls: ClientTLS?
        var sources: Sources
        var opensWebSocket = true
        var reads = true

        func client(reads: Bool = true, receiveBuffer: Int? = nil) async throws -> HostileClient {
            try await HostileClient(
                to: self.endpoint,
                opensWebSocket: self.opensWebSocket,
                format: self.format,
                reads: self.reads && reads,
                tls: self.tls,
                from: self.sources.next(),
                receiveBuffer: receiveBuffer
            )
        }
    }

    /// Creates a client for each element, one after the other, until the Swift task is cancelled.
    func each<Element>(
        of elements: [Element],
        _ target: Target,
        _ act: (Element) -> HostileClient.Act
    ) async throws -> [HostileClient] {
        var clients: [HostileClient] = []
        for element in elements where !Task.isCancelled {
            let client = try await target.client()
            clients.append(client)
            await client.perform(act(element), within: .milliseconds(500))
        }
        return clients
    }

    /// Runs many clients, some concurrently, which discard what they receive, until the Swift task is cancelled.
    ///
    /// - Parameters:
    ///   - width: The number of clients that connect or act at the same time.
    ///   - stays: Whether they stay connected. If they do not, one idle client is returned.
    ///   - act: The actions of a client, whose number begins with 0.
    ///
    /// - Throws: The error of one that could not connect, if none could.
    func crowd(
        of count: Int,
        _ target: Target,
        atOnce width: Int = 32,
        receiveBuffer: Int? = nil,
        stays: Bool = true,
        within patience: Duration = .milliseconds(500),
        _ act: @escaping @Sendable (Int) -> HostileClient.Act
    ) async throws -> [HostileClient] {
        try await withThrowingTaskGroup(of: Result<HostileClient, any Error>.self) { group in
            var (clients, started) = ([HostileClient](), 0)
            var failure: (any Error)?
            func start() {
                let number = started
                started += 1
                group.addTask {
                    do {
                        let client = try await target.client(receiveBuffer: receiveBuffer)
                        if target.reads { client.discardWhatComes() }
                        await client.perform(act(number), within: patience)
                        return .success(client)
                    } catch {
                        return .failure(error)
                    }
                }
            }
            while started < min(width, count) { start() }
            while let result = try await group.next() {
                switch result {
                case .success(let client): if stays || clients.isEmpty { clients.append(client) }
                case .failure(let error): failure = error
                }
                if started < count, !Task.isCancelled { start() }
            }
            if clients.isEmpty, let failure { throw failure }
            return clients
        }
    }
}
