import Dispatch

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Signals as a stream, for as long as this lives; they no longer end the process.
final class Signals {
    /// Each signal as it comes.
    let stream: AsyncStream<CInt>
    private let sources: [any DispatchSourceSignal]

    /// - Parameter numbers: SIGINT and SIGTERM by default.
    init(_ numbers: [CInt] = [SIGINT, SIGTERM]) {
        let (stream, continuation) = AsyncStream.makeStream(of: CInt.self)
        self.stream = stream
        let queue = DispatchQueue(label: "signals")
        let registered = DispatchGroup()
        self.sources = numbers.map { number in
            // A source only watches: without this the signal would still do what it does by default.
            signal(number, SIG_IGN)
            let source = DispatchSource.makeSignalSource(signal: number, queue: queue)
            source.setEventHandler { continuation.yield(number) }
            registered.enter()
            source.setRegistrationHandler { registered.leave() }
            source.resume()
            return source
        }
        // Sources begin to watch on a thread of their own, some time later. A signal that comes before would be lost.
        registered.wait()
    }

    deinit {
        for source in self.sources { source.cancel() }
    }

    /// A reader of our output that leaves is told by `write`, not by a signal that ends the process.
    static func ignoreBrokenPipes() {
        signal(SIGPIPE, SIG_IGN)
    }
}
