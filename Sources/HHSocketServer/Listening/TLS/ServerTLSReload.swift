// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import Logging
import NIOConcurrencyHelpers

/// The TLS of a server's listeners, and how it is replaced. Any thread but event loops', since files are read.
final class ServerTLSReload: Sendable {
    /// The TLS of new connections, for each listener; nil without TLS.
    let services: [NIOLockedValueBox<TLSService?>]
    private let listeners: [ServerListener]
    private let logger: Logger
    /// Locked while files are read and the result is put in place.
    private let state = NIOLockedValueBox(State())

    private struct State {
        var isRunning = false
        var watch: TLSFileWatch?
    }

    init(_ configuration: ServerConfiguration) {
        self.listeners = configuration.listeners
        self.logger = configuration.logger
        self.services = configuration.listeners.map { _ in NIOLockedValueBox(nil) }
    }

    /// Reads the files for the first time.
    ///
    /// - Throws: ``/HHSocket/SocketError`` with code `invalidArgument` and the listener's address.
    func begin() throws(SocketError) {
        for (listener, service) in zip(self.listeners, self.services) {
            do throws(SocketError) {
                guard let tls = listener.tls else { continue }
                let made = try TLSService(tls)
                service.withLockedValue { $0 = made }
            } catch {
                var error = error
                error.endpoint = listener.endpoint
                throw error
            }
        }
        self.state.withLockedValue {
            $0.isRunning = true
            self.watch(&$0.watch)
        }
    }

    /// - Parameter tls: Nil for the current settings of each listener.
    func reload(_ tls: ServerTLS?) throws(SocketError) {
        let result = self.state.withLockedValue { state in
            Result { () throws(SocketError) in
                try self.replace(tls)
                if state.isRunning { self.watch(&state.watch) }
            }
        }
        try result.get()
    }

    /// All or nothing.
    private func replace(_ tls: ServerTLS?) throws(SocketError) {
        var made: [(NIOLockedValueBox<TLSService?>, TLSService)] = []
        for (listener, service) in zip(self.listeners, self.services) {
            let present = service.withLockedValue { $0 }
            // Before the server has started, the configured settings, to find out whether they can be read.
            guard let present = present?.tls ?? listener.tls else { continue }
            made.append((service, try TLSService(tls ?? present, after: service.withLockedValue { $0 })))
        }
        guard !made.isEmpty else { throw .invalid("no listener of this server has TLS") }
        for (service, new) in made {
            new.activate()
            service.withLockedValue { $0 = new }
        }
    }

    /// Watches the files that are in use now, if configured.
    private func watch(_ watch: inout TLSFileWatch?) {
        let used = self.services.compactMap { $0.withLockedValue { $0?.tls } }
        let interval = used.compactMap(\.fileCheckInterval).min()
        let files = used.filter { $0.fileCheckInterval != nil }.flatMap(\.files)
        if let interval, !files.isEmpty {
            if let watch { return watch.watch(files, every: interval) }
            watch = TLSFileWatch(files, every: interval) { [weak self] in self?.filesHaveChanged() ?? () }
        } else {
            watch?.end()
            watch = nil
        }
    }

    private func filesHaveChanged() {
        do throws(SocketError) {
            try self.reload(nil)
            self.logger.notice("certificates were reloaded")
        } catch {
            self.logger.error("certificates cannot be reloaded", metadata: ["error": "\(error.message)"])
        }
    }

    func end() {
        self.state.withLockedValue {
            $0.watch?.end()
            $0 = State()
        }
    }
}

extension ServerTLS {
    /// All that it reads.
    var files: [String] {
        let trust: TLSTrust? =
            switch self.clientCertificates {
            case .none: nil
            case .wanted(let trust), .required(let trust): trust
            }
        return self.identity.files + self.identitiesByHost.values.flatMap(\.files) + (trust?.files ?? [])
            + self.revocationLists.flatMap(\.files)
    }
}
