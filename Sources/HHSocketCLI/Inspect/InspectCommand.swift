// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import Foundation
import HHSocket
import NIOCore

struct InspectCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "inspect",
        abstract: "List the frames of a recorded stream.",
        discussion: """
            Prints one line per frame: direction, offset in bytes, type, serial, status (- in a request), length of the \
            payload, and whether the checksum is right. With --proto, a line in JSON follows for each frame whose type \
            belongs to a method or a push. If the bytes are no longer frames of the format, an error on \
            stderr gives the offset and the reason; in a format with separators each stretch that is not a frame is \
            reported, and reading continues after the next separator. The exit code is 0 if the whole stream was read and every checksum was right, else 1.
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

    @Option(help: "The direction of the frames: request or response.")
    var direction = Direction.request

    @Option(help: FormatArgument.help, transform: FormatArgument.parse)
    var format = WireFormat.standard

    @OptionGroup var declarations: ProtoOptions

    func run() async throws {
        Signals.ignoreBrokenPipes()
        var inspector = FrameInspector(
            direction: self.direction.frameDirection,
            format: self.format,
            payloads: try self.declarations.schema().map { InspectedPayloads($0) }
        )
        do {
            if self.hex {
                try self.inspectText(&inspector)
            } else {
                let input = try InputFile.handle(of: self.file)
                while let data = try self.piece(of: input), !data.isEmpty {
                    try self.inspect(ByteBuffer(bytes: data), &inspector)
                }
            }
            try inspector.finish()
        } catch is StandardOutput.Closed {
            throw ExitCode.failure
        } catch let code as ExitCode {
            throw code
        } catch {
            StandardError.line("error: \(error)")
            throw ExitCode.failure
        }
        if inspector.malformedStretches > 0 {
            let count = inspector.malformedStretches
            StandardError.line("\(count) \(count == 1 ? "stretch is" : "stretches are") no frame")
        }
        if inspector.corruptFrames + inspector.malformedStretches > 0 { throw ExitCode.failure }
    }

    /// Reads the next piece; nil, or empty, at the end.
    private func piece(of input: FileHandle) throws(ExitCode) -> Data? {
        do {
            return try input.read(upToCount: 1 << 16)
        } catch {
            throw InputFile.failure(self.file, error)
        }
    }

    private func inspectText(_ inspector: inout FrameInspector) throws {
        var dump = HexDump()
        // A dump for people to read fits into memory.
        let text = String(decoding: try InputFile.content(of: self.file), as: UTF8.self)
        for line in text.split(separator: "\n", omittingEmptySubsequences: false) {
            try self.inspect(ByteBuffer(bytes: dump.bytes(of: line)), &inspector)
        }
    }

    private func inspect(_ bytes: ByteBuffer, _ inspector: inout FrameInspector) throws {
        var findings: [FrameInspector.Finding] = []
        // The frames before an error are printed first.
        let result = bytes.withUnsafeReadableBytes { bytes in
            Result { try inspector.inspect(bytes) { findings.append($0) } }
        }
        var lines = ""
        func printLines() throws {
            if !lines.isEmpty { try StandardOutput.write(lines) }
            lines = ""
        }
        for finding in findings {
            switch finding {
            case .frame(let line):
                lines += line
            case .malformed(let nonsense):
                try printLines()
                StandardError.line("error: \(nonsense)")
            }
        }
        try printLines()
        try result.get()
    }
}
