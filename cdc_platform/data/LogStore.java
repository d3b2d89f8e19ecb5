package cdc_platform;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.Iterator;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * How Spark makes a commit of a Delta table, in a folder or on S3: in one step, unless another has made that version
 * (Delta's own log stores look first and then write, so the second of two overwrites the first), and only while the
 * session's source is leased to it (cdc_platform/lake/lease.py). Written for Janino, pyspark's own compiler:
 * `python -m cdc_platform.setup.log_store` makes the jar.
 */
public class LogStore extends HadoopFileSystemLogStore {
  public LogStore(Configuration conf) {
    super(conf);
  }

  public void write(Path path, Iterator actions, Boolean overwrite, Configuration conf) throws IOException {
    ByteArrayOutputStream text = new ByteArrayOutputStream();
    while (actions.hasNext()) {
      text.write(((String) actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
    }
    FileSystem fs = path.getFileSystem(conf);
    if (overwrite.booleanValue()) {
      FSDataOutputStream out = fs.create(path, true);
      out.write(text.toByteArray());
      out.close();
      return;
    }
    checkLease(conf);
    if (isFolder(fs)) {
      link(path, text.toByteArray());
    } else {
      putNew(fs, path, text.toByteArray());
    }
  }

  /** A folder: a file beside it, on the disk, that gets the commit's name unless there is one of that name. */
  private static void link(Path path, byte[] text) throws IOException {
    java.nio.file.Path file = Paths.get(path.toUri().getPath(), new String[0]);
    java.nio.file.Path made = file.resolveSibling("." + file.getFileName() + "." + UUID.randomUUID() + ".tmp");
    try {
      FileChannel out = FileChannel.open(made, new StandardOpenOption[] {
          StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE});
      try {
        ByteBuffer rest = ByteBuffer.wrap(text);
        while (rest.hasRemaining()) {
          out.write(rest);
        }
        out.force(true);
      } finally {
        out.close();
      }
      try {
        Files.createLink(file, made);
      } catch (FileAlreadyExistsException error) { // what Delta takes for a conflict
        if (!Files.isSameFile(file, made)) { // NFS: the link was made, its answer was lost, and it was asked again
          throw error;
        }
      }
    } finally {
      Files.deleteIfExists(made);
    }
  }

  /** S3: If-None-Match. Whatever goes wrong, what is there then says who made the commit. */
  private static void putNew(FileSystem fs, Path path, byte[] text) throws IOException {
    FSDataOutputStreamBuilder to = fs.createFile(path);
    to.overwrite(true);
    to.recursive();
    to.must("fs.option.create.conditional.overwrite", true);
    try {
      FSDataOutputStream out = (FSDataOutputStream) to.build();
      out.write(text);
      out.close();
    } catch (IOException error) {
      byte[] there = read(fs, path, text.length);
      if (there == null) {
        throw error;
      }
      if (!Arrays.equals(there, text)) { // commitInfo.txnId is of this commit alone
        throw new FileAlreadyExistsException(path.toString());
      }
    }
  }

  /** The first bytes of a file, one more than `most`; null: there is none. */
  private static byte[] read(FileSystem fs, Path path, int most) throws IOException {
    ByteArrayOutputStream found = new ByteArrayOutputStream();
    try {
      FSDataInputStream in = fs.open(path);
      try {
        byte[] some = new byte[8192];
        int n = in.read(some);
        while (n > 0 && found.size() <= most) {
          found.write(some, 0, n);
          n = in.read(some);
        }
      } finally {
        in.close();
      }
    } catch (FileNotFoundException error) {
      return null;
    }
    return found.toByteArray();
  }

  /** A process that took the source over has made a record of a higher number. */
  private static void checkLease(Configuration conf) throws IOException {
    String record = conf.get("cdc.lease");
    if (record == null) {
      return;
    }
    String mine = new Path(record).getName();
    Path at = new Path(record).getParent();
    TreeSet names = new TreeSet();
    FileStatus[] found = at.getFileSystem(conf).listStatus(at);
    for (int i = 0; i < found.length; i++) {
      names.add(found[i].getPath().getName());
    }
    if (!names.contains(mine)) {
      throw new IOException("cdc-platform: the lease " + mine + " is gone from " + at);
    }
    if (!names.last().equals(mine)) {
      throw new IOException("cdc-platform: the lease " + mine + " is over, another process has " + names.last());
    }
  }

  private static boolean isFolder(FileSystem fs) {
    return fs.getUri().getScheme().equals("file");
  }

  public Boolean isPartialWriteVisible(Path path, Configuration conf) throws IOException {
    return Boolean.valueOf(isFolder(path.getFileSystem(conf)));
  }
}
