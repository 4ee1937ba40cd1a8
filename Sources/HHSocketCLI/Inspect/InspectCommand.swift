import ArgumentParser
import Foundation
import HHSocket
import NIOCore

struct InspectCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "inspect",
        abstract: "Tell which frames a recorded stream holds.",
        discussion: """
            A line on stdout for each frame: direction, offset in bytes, type, serial, status (- in a request), length of \
            the payload, and whether the checksum is right. Where the stream stops making sense, stderr says where and \
            why. The exit code is 0 when all of it made sense and every checksum was right, else 1.
            """
    )

    enum Direction: String, ExpressibleByArgument, CaseIterable {
        case request, response

        var frameDirection: FrameDirection {
            switch self {
            case .request: .request
            case .response: .response
            }
        }
    }

    @Argument(help: "The file; - is stdin.")
    var file: String

    @Flag(help: "The file is text: hex digits, or what xxd, hexdump -C or tcpdump -x print.")
    var hex = false

    @Option(help: "Which way the frames went: request or response.")
    var direction = Direction.request

    @Option(help: FormatArgument.help, transform: FormatArgument.parse)
    var format = WireFormat.standard

    func run() async throws {
        Signals.ignoreBrokenPipes()
        var inspector = FrameInspector(direction: self.direction.frameDirection, format: self.format)
        do {
            let input = try self.input()
            if self.hex {
                try self.inspectText(input, &inspector)
            } else {
                while let data = try input.read(upToCount: 1 << 16), !data.isEmpty {
                    try self.inspect(ByteBuffer(bytes: data), &inspector)
                }
            }
            try inspector.finish()
        } catch is StandardOutput.Closed {
            throw ExitCode.failure
        } catch let error as ValidationError {
            throw error
        } catch {
            StandardError.line("error: \(error)")
            throw ExitCode.failure
        }
        if inspector.corruptFrames > 0 { throw ExitCode.failure }
    }

    private func input() throws -> FileHandle {
        if self.file == "-" { return .standardInput }
        guard let handle = FileHandle(forReadingAtPath: self.file) else {
            throw ValidationError("Cannot read \(self.file).")
        }
        return handle
    }

    private func inspectText(_ input: FileHandle, _ inspector: inout FrameInspector) throws {
        var dump = HexDump()
        // A dump is several times what it shows, and made for eyes: it fits into memory.
        let text = String(decoding: try input.readToEnd() ?? Data(), as: UTF8.self)
        for line in text.split(separator: "\n", omittingEmptySubsequences: false) {
            try self.inspect(ByteBuffer(bytes: dump.bytes(of: line)), &inspector)
        }
    }

    private func inspect(_ bytes: ByteBuffer, _ inspector: inout FrameInspector) throws {
        var lines = ""
        // What was found before the stream stopped making sense is printed first.
        let result = bytes.withUnsafeReadableBytes { bytes in
            Result { try inspector.inspect(bytes) { lines += $0 } }
        }
        if !lines.isEmpty { try StandardOutput.write(lines) }
        try result.get()
    }
}
