/** Products behind pooling: sentence-transformers' Dense modules. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { type Device, FileFormatError, scope, type Tensor } from '@x/core';
import { PthFile, SafetensorsFile } from '@x/core/files';
import { type ActivationName, activate, Linear, type Module } from '@x/nn';
import { TransformersError } from '@x/transformers';
import type { DenseSettings } from './settings';

export class Dense {
  /** Owns the layer. */
  constructor(
    private readonly layer: Module,
    private readonly activation: ActivationName | undefined,
    readonly inFeatures: number,
    readonly outFeatures: number,
  ) {}

  /** @throws FileFormatError, TransformersError BAD_CONFIG for weights of other shapes */
  static async load(settings: DenseSettings, device: Device): Promise<Dense> {
    const { directory, inFeatures, outFeatures, bias, activation } = settings;
    const [safetensors, pth] = ['model.safetensors', 'pytorch_model.bin'].map((name) => join(directory, name));
    if (![safetensors, pth].some((path) => existsSync(path))) {
      throw new FileFormatError(
        'FILE_NOT_FOUND',
        `${safetensors}: there is no such file. Download the whole model, with the directories that modules.json names.`,
        { path: safetensors },
      );
    }
    using file = existsSync(safetensors) ? SafetensorsFile.open(safetensors) : PthFile.open(pth);
    const made: Tensor[] = [];
    const load = async (name: string, shape: readonly number[]) => {
      const tensor = await file.load(name, device, { dtype: 'f32' });
      made.push(tensor);
      if (tensor.shape.join() === shape.join()) return tensor;
      throw new TransformersError(
        'BAD_CONFIG',
        `${file.path}: ${name} has the shape [${tensor.shape}], and config.json beside it says [${shape}]; download it again.`,
      );
    };
    try {
      const weight = await load('linear.weight', [outFeatures, inFeatures]);
      const shift = bias ? await load('linear.bias', [outFeatures]) : undefined;
      return new Dense(new Linear(weight, shift), activation, inFeatures, outFeatures);
    } catch (error) {
      for (const tensor of made) tensor.dispose();
      throw error;
    }
  }

  /** [texts, inFeatures] to [texts, outFeatures] */
  forward(x: Tensor): Tensor {
    return scope(() => {
      const y = this.layer.forward(x);
      return this.activation ? activate(y, this.activation) : y;
    });
  }

  dispose(): void {
    this.layer.dispose();
  }
}
