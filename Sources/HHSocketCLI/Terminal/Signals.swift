// SPDX-License-Identifier: Apache-2.0
import Dispatch

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A stream of signals, for the lifetime of this object. The signals no longer end the process.
final class Signals {
    /// The received signals.
    let stream: AsyncStream<CInt>
    private let sources: [any DispatchSourceSignal]

    /// - Parameter numbers: SIGINT and SIGTERM by default.
    init(_ numbers: [CInt] = [SIGINT, SIGTERM]) {
        let (stream, continuation) = AsyncStream.makeStream(of: CInt.self)
        self.stream = stream
        let queue = DispatchQueue(label: "signals")
        let registered = DispatchGroup()
        self.sources = numbers.map { number in
            // A source only observes: otherwise the signal would still have its default effect.
            signal(number, SIG_IGN)
            let source = DispatchSource.makeSignalSource(signal: number, queue: queue)
            source.setEventHandler { continuation.yield(number) }
            registered.enter()
            source.setRegistrationHandler { registered.leave() }
            source.resume()
            return source
        }
        // Sources start on another thread, some time later. A signal before that would be lost.
        registered.wait()
    }

    deinit {
        for source in self.sources { source.cancel() }
    }

    /// Makes `write` report a closed output, instead of a signal that ends the process.
    static func ignoreBrokenPipes() {
        signal(SIGPIPE, SIG_IGN)
    }
}
